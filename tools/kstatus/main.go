// kstatus reads a List of objects as JSON from stdin, and prints the status that kstatus computes for each, a line each.
// https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	var list unstructured.UnstructuredList
	if err := json.NewDecoder(os.Stdin).Decode(&list); err != nil {
		log.Fatal(err)
	}
	for _, object := range list.Items {
		result, err := status.Compute(&object)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Status)
	}
}
