// A minimal client in Go with client-go: it sends the requests of a sweep, and does nothing else, like benchmarks/bare/sync_copies.py.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	home      = "bench-home"
	managedBy = "app.kubernetes.io/managed-by"
	mark      = "kubechores.dev/fingerprint"
	inFlight  = 16
)

// As long as those of sync-copies: larger objects are more work for the server.
var labels = map[string]string{
	managedBy:                       "bare-go",
	"kubechores.dev/job":            "sync-copies",
	"kubechores.dev/rule-hash":      "0123456789abcdef",
	"kubechores.dev/rule-namespace": "kube-chores",
}

var requests, received, sent, written atomic.Int64

type counted struct{ inner http.RoundTripper }

type body struct{ io.ReadCloser }

func (b body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	received.Add(int64(n))
	return n, err
}

func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	requests.Add(1)
	sent.Add(max(request.ContentLength, 0))
	answer, err := c.inner.RoundTrip(request)
	if err == nil {
		answer.Body = body{answer.Body}
	}
	return answer, err
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

type seen struct{ hash, version string }

func main() {
	config := must(clientcmd.BuildConfigFromFlags("", os.Args[1]))
	config.QPS = -1 // no client-side rate limit
	config.DisableCompression = true
	config.UserAgent = "bare-go"
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return counted{inner} })
	typed := must(kubernetes.NewForConfig(config))
	partial := must(metadata.NewForConfig(config))
	ctx := context.Background()

	copies := map[[2]string]seen{}
	resource := corev1.SchemeGroupVersion.WithResource("secrets")
	for options := (metav1.ListOptions{Limit: 500, LabelSelector: managedBy + "=bare-go"}); ; {
		page := must(partial.Resource(resource).List(ctx, options))
		for _, one := range page.Items {
			copies[[2]string{one.Namespace, one.Name}] = seen{one.Annotations[mark], one.ResourceVersion}
		}
		if options.Continue = page.Continue; page.Continue == "" {
			break
		}
	}
	var namespaces []string
	for options := (metav1.ListOptions{Limit: 500}); ; {
		page := must(typed.CoreV1().Namespaces().List(ctx, options))
		for _, one := range page.Items {
			if strings.HasPrefix(one.Name, "bench-team-") {
				namespaces = append(namespaces, one.Name)
			}
		}
		if options.Continue = page.Continue; page.Continue == "" {
			break
		}
	}
	sources := must(typed.CoreV1().Secrets(home).List(ctx, metav1.ListOptions{LabelSelector: "bench=yes"}))

	work := make(chan *corev1.Secret)
	var workers sync.WaitGroup
	for range inFlight {
		workers.Go(func() {
			for secret := range work {
				if secret.ResourceVersion == "" {
					must(typed.CoreV1().Secrets(secret.Namespace).Create(ctx, secret, metav1.CreateOptions{}))
				} else {
					must(typed.CoreV1().Secrets(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{}))
				}
				written.Add(1)
			}
		})
	}
	for _, source := range sources.Items {
		sum := sha256.Sum256(must(json.Marshal(source.Data)))
		hash := hex.EncodeToString(sum[:])
		for _, namespace := range namespaces {
			found := copies[[2]string{namespace, source.Name}]
			if found.hash == hash {
				continue
			}
			work <- &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{
					Name: source.Name, Namespace: namespace, ResourceVersion: found.version,
					Labels: labels, Annotations: map[string]string{
						"kubechores.dev/orphans": "Delete", "kubechores.dev/rule": "kube-chores/bench",
						"kubechores.dev/source": home + "/" + source.Name, mark: hash,
					},
				},
				Type: source.Type, Data: source.Data,
			}
		}
	}
	close(work)
	workers.Wait()
	json.NewEncoder(os.Stdout).Encode(map[string]int64{
		"requests": requests.Load(), "received": received.Load(), "sent": sent.Load(), "written": written.Load(),
	})
}
