package main

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	yaml "go.yaml.in/yaml/v3"
)

// What the webhook is to do on machines of the cluster is in the manifest as it was said.
func TestWebhookManifest(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	for _, x := range []struct{ more, want []string }{
		{nil, nil},
		{[]string{"--node-folder", "/srv/the pool/shared"}, []string{"--node-folder", "/srv/the pool/shared"}},
		{[]string{"--runtime-class", "nvidia", "--node-folder", "/srv/shared"}, []string{"--node-folder", "/srv/shared", "--runtime-class", "nvidia"}},
	} {
		c := start(t, s, nil, append([]string{"pool", "webhook", "manifest", "--image", "yunhe:1", "--platform-url", "https://x"}, x.more...)...)
		c.end(t, 0)
		want := slices.Concat([]string{"pool", "webhook", "--image", "yunhe:1", "--platform-url", "https://x", "--secret", "yunhe-pool"}, x.want, []string{"--cert", "/tls/tls.crt", "--cert-key", "/tls/tls.key"})
		var args []string
		for docs := yaml.NewDecoder(bytes.NewReader([]byte(c.out.String()))); ; {
			var doc struct {
				Kind string
				Spec struct {
					Template struct {
						Spec struct{ Containers []struct{ Args []string } }
					}
				}
			}
			if err := docs.Decode(&doc); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if doc.Kind == "Deployment" {
				args = doc.Spec.Template.Spec.Containers[0].Args
			}
		}
		if !slices.Equal(args, want) {
			t.Errorf("%v: got %q, want %q", x.more, args, want)
		}
	}
}
