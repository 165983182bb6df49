package bench_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"yunhe.dev/yunhe/internal/scheduler/bench"
)

func TestZZ(t *testing.T) {
	p, _ := strconv.Atoi(os.Getenv("PARTS"))
	if err := bench.Run(context.Background(), []string{os.Getenv("ROWS")}, p, func(r bench.Row) { fmt.Printf("%+v\n", r) }); err != nil {
		t.Fatal(err)
	}
}
