# Any base with python3 and its venv module, e.g. --build-arg BASE=registry.example.com/python:3.13-slim
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
RUN python3 -m venv /app
COPY requirements.lock .
# Only wheels, so that no platform needs a compiler.
RUN /app/bin/pip install --no-cache-dir --no-compile --only-binary=:all: --require-hashes -r requirements.lock
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY jobs jobs
COPY cronjobs cronjobs
# setuptools comes from the lock, so nothing is fetched here. The bytecode names no times, so it stays valid if a tool sets
# the times of all files to make the image reproducible.
RUN /app/bin/pip install --no-cache-dir --no-compile --no-deps --no-index --no-build-isolation . \
 && /app/bin/pip uninstall --yes --quiet setuptools pip \
 && rm -f /app/bin/[Aa]ctivate* \
 && python3 -m compileall -f -q --invalidation-mode unchecked-hash /app/lib

FROM ${BASE}
LABEL org.opencontainers.image.title="kube-chores" \
      org.opencontainers.image.description="Scheduled chores for a Kubernetes cluster" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# The root file system is read-only in a pod: bytecode is compiled now or at each start. Some bases ship none. No pod
# installs packages, so pip of the base is removed.
RUN lib=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') \
 && rm -rf "$lib"/ensurepip "$lib"/site-packages/pip "$lib"/site-packages/pip-*.dist-info /usr/local/bin/pip* \
 && python3 -m compileall -q --invalidation-mode unchecked-hash \
    -x '/(test|idlelib|lib2to3|site-packages|dist-packages)/' "$lib"
COPY --from=build /app /app
USER 65532:65532
ENTRYPOINT ["chores"]
