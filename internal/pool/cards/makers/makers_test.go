//go:build linux

package makers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunhe.dev/yunhe/internal/pool/cards"
	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
	"yunhe.dev/yunhe/internal/pool/cards/makers"
)

// The libraries of makers are played by what is in ../testdata: no card of any of
// them was at hand.

// serve is in the environment of a process that is a driver's.
const serve = "YUNHE_CARDS_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(serve) == "" {
		os.Exit(m.Run())
	}
	if err := makers.Serve(os.Args[2], os.Args[3], os.Stdin, os.NewFile(3, "answers")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func driver(t *testing.T, name, folder string) *cards.Driver {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := cards.NewDriver(name, self, folder, append(os.Environ(), serve+"=1"))
	t.Cleanup(func() { d.Hold(context.WithoutCancel(t.Context()))() })
	return d
}

func TestMakers(t *testing.T) {
	t.Parallel()
	folder := cardstest.Build(t, "nvml", "dcmi", "cndev", "rocm-smi")
	p := func(v int64) *int64 { return &v }
	yes, no := true, false
	for name, want := range map[string][]cards.Card{
		"nvml": {
			{Driver: "nvml", Vendor: "NVIDIA", Model: "FAKE H100", Bus: "0000:65:00.0", Memory: 80 << 30, Used: 1 << 30, Temperature: p(41), Power: p(90000), Energy: p(1500), Busy: p(37), Uncorrected: p(3),
				UUID: "GPU-02020202-0202-0202-0202-020202020202", ECC: &yes, MIG: &no,
				Limit: p(350000), LeastLimit: p(100000), MostLimit: p(400000), BaseLimit: p(350000)},
			{Driver: "nvml", Index: 1, Vendor: "NVIDIA", Model: "FAKE H200", Bus: "0000:66:00.0", Memory: 80 << 30, Used: 2 << 30, Temperature: p(42), Power: p(91000), Busy: p(38), Uncorrected: p(4),
				UUID: "GPU-03030303-0303-0303-0303-030303030303", ECC: &yes,
				Limit: p(350000), LeastLimit: p(100000), MostLimit: p(400000), BaseLimit: p(350000)},
		},
		"dcmi": {
			{Driver: "dcmi", Vendor: "Huawei", Model: "Ascend FAKE910B0", Bus: "0001:c1:02.0", Memory: 64 << 30, Used: 4 << 30, Temperature: p(52), Power: p(94300), Busy: p(61), Uncorrected: p(7)},
			{Driver: "dcmi", Index: 1, Vendor: "Huawei", Model: "Ascend FAKE910B1", Bus: "0001:c1:02.1", Memory: 24 << 30, Used: 576 << 20, Temperature: p(53), Power: p(94400), Busy: p(62)},
		},
		"cndev": {
			{Driver: "cndev", Vendor: "Cambricon", Model: "FAKE MLU370", Bus: "0000:3b:1f.1", Memory: 24 << 30, Used: 512 << 20, Temperature: p(33), Power: p(71000), Busy: p(12), Uncorrected: p(2)},
		},
		"rocm-smi": {
			{Driver: "rocm-smi", Vendor: "Chengdu Haiguang", Model: "FAKE K100", Bus: "0002:0a:03.0", Memory: 64 << 30, Used: 3 << 30, Temperature: p(47), Power: p(120500), Energy: p(15300), Busy: p(88), Uncorrected: p(1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := driver(t, name, folder).Cards(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestNVMLFaultsAndLimit(t *testing.T) {
	t.Parallel()
	d := driver(t, "nvml", cardstest.Build(t, "nvml"))
	for range 2 { // faults are heard from the first answer on, and counted once
		if _, err := d.Cards(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Limit(t.Context(), 0, 200_000); err != nil {
		t.Fatal(err)
	}
	for index, want := range map[int]string{1: "Insufficient Permissions", 2: "no limit"} {
		if err := d.Limit(t.Context(), index, 200_000); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("limit of card %d: %v, want %q", index, err, want)
		}
	}
	got, err := d.Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if *got[0].Limit != 200_000 || *got[0].Energy != 2500 || got[0].Faults != 0 || got[1].Faults != 1 || got[1].Fault != "Xid 79" {
		t.Errorf("got %+v", got)
	}
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	folder := cardstest.Build(t, "dcmi", "cndev", "rocm-smi")
	for _, name := range []string{"dcmi", "cndev", "rocm-smi"} {
		if err := driver(t, name, folder).Limit(t.Context(), 0, 1); err == nil || !strings.Contains(err.Error(), "no limit of power") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A library that is not there, crashes, hangs or whose driver does not run costs
// its own answer.
func TestFailures(t *testing.T) {
	t.Parallel()
	if _, err := driver(t, "dcmi", t.TempDir()).Cards(t.Context()); !errors.Is(err, cards.ErrAbsent) {
		t.Errorf("no library: %v", err)
	}
	for how, want := range map[string]string{"CRASH": "fakenvml crashes", "ASLEEP": "nvmlInit_v2: Driver Not Loaded", "HANG": "the library does not answer"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			d := driver(t, "nvml", cardstest.Build(t, "nvml -D"+how))
			for range 2 { // and is asked anew
				ctx := t.Context()
				if how == "HANG" {
					c, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
					defer cancel()
					ctx = c
				}
				_, err := d.Cards(ctx)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
				d.Hold(t.Context())() // it has ended
			}
		})
	}
}

func TestBus(t *testing.T) {
	t.Parallel()
	if got := cards.Bus(0x10000, 0xa, 3, 7); got != "10000:0a:03.7" {
		t.Errorf("got %s", got)
	}
}
