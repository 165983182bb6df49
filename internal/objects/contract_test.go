package objects_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"yunhe.dev/yunhe/internal/objects"
	"yunhe.dev/yunhe/internal/objects/objectstest"
)

func TestFolderContract(t *testing.T) {
	t.Parallel()
	objectstest.Run(t, func(t *testing.T) objects.Store {
		s, err := objects.Open(t.Context(), objects.Config{URL: "file://" + t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestS3Contract(t *testing.T) {
	t.Parallel()
	c := objects.RealS3(t)
	var stores atomic.Int64
	objectstest.Run(t, func(t *testing.T) objects.Store {
		c := c
		c.URL = strings.Replace(c.URL, "yunhe?", fmt.Sprintf("yunhe/store-%d?", stores.Add(1)), 1)
		s, err := objects.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
