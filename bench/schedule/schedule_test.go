package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/enginetest"
)

// TestMain lets this program be the centers, as the benchmark's own does.
func TestMain(m *testing.M) {
	if os.Getenv(centersEnv) == "" {
		os.Exit(m.Run())
	}
	if err := serveCenters(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestEveryJobComesOnce runs the benchmark with few jobs; how fast they are is
// not looked at.
func TestEveryJobComesOnce(t *testing.T) {
	if _, err := enginetest.Binary(); err != nil {
		t.Skip(err)
	}
	for _, database := range []string{"sqlite", "postgres"} {
		t.Run(database, func(t *testing.T) {
			o := options{parts: []string{"queue", "steady", "peer"}, centers: 5, jobs: 40, kinds: 3, rate: 100, batch: 5, clients: 2,
				steady: 400 * time.Millisecond, idle: 100 * time.Millisecond, run: 10 * time.Millisecond}
			figures, err := measure(t.Context(), o, database)
			if err != nil {
				t.Fatal(err)
			}
			if figures == nil {
				t.Skipf("there is no %s here", database)
			}
			for _, want := range []string{"queue to center", "steady, T, p99", "memory of the platform, at most"} {
				found := false
				for _, f := range figures {
					found = found || f.Name == want && f.Value > 0 && f.Database == database
				}
				if !found {
					t.Errorf("there is no figure %q among %+v", want, figures)
				}
			}
		})
	}
}

func TestFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-databases mysql": `-databases must be of sqlite, postgres, got "mysql"`,
		"-parts all":       `-parts must be of queue, steady, peer, got "all"`,
		"-centers 0":       "-centers must be at least 1, got 0",
		"-o xml":           `-o must be of table, json, got "xml"`,
	} {
		if err := run(t.Context(), strings.Fields(args)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}
