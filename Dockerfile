# Any base with python3 and its venv module, e.g. --build-arg BASE=registry.example/python:3.13-slim
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
RUN python3 -m venv /app
COPY requirements.lock .
RUN /app/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY jobs jobs
COPY cronjobs cronjobs
# setuptools comes from the lock, so nothing is fetched here.
RUN /app/bin/pip install --no-cache-dir --no-deps --no-index --no-build-isolation . \
 && /app/bin/pip uninstall --yes --quiet setuptools pip

FROM ${BASE}
LABEL org.opencontainers.image.title="kube-chores" \
      org.opencontainers.image.description="Scheduled chores for a Kubernetes cluster" \
      org.opencontainers.image.licenses="Apache-2.0"
# The root file system is read-only in a pod: bytecode is compiled now or at each start. Some bases ship none.
RUN python3 -m compileall -q -x '/(test|idlelib|lib2to3)/' "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY --from=build /app /app
USER 65532:65532
ENTRYPOINT ["chores"]
