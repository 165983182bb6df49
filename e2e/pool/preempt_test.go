package pool_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestPreempted: a job with a higher priority has the card of one that computes with a lower one,
// where the settings allow that; which computes again when the card is there again.
func TestPreempted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: gateways need root to isolate what they run")
	}
	w := open(t, false)
	vendors := w.vendors("one", "pocl.icd")
	w.lend(vendors, "n1")
	w.gateway("center", nil)
	native := exec.Command(w.bench.Program, "add", "3")
	native.Env = append(os.Environ(), "OCL_ICD_VENDORS="+vendors)
	sum, err := native.Output()
	must(t, err)
	program := []string{"--add-file", w.bench.Program + ":program"}
	const card = "compute=100,memory=64MiB,group=g"
	low := w.submit(card, "./program spin 600", append(program, "--priority", "-10")...)
	w.until("it computes", func() bool { return strings.Contains(w.yunhe("job", "logs", low), "spinning") })
	w.yunhe("queue", "settings", "set", "--preempt-priority")
	urgent := w.submit(card, "./program add 3", append(program, "--priority", "50")...)
	w.yunhe("job", "wait", urgent)
	if log := w.yunhe("job", "logs", urgent); log != string(sum) {
		t.Errorf("with the other's card it says %q, natively %q", log, sum)
	}
	w.until("the other computes again", func() bool {
		return regexp.MustCompile(`"attempt": *2\b`).MatchString(w.yunhe("job", "show", low, "-o", "json")) && strings.Contains(w.yunhe("job", "logs", low), "spinning")
	})
	w.yunhe("job", "stop", low)
	if usage := w.yunhe("usage", "list", "--job", low, "-o", "json"); strings.Count(usage, "pool/n1") != 2 {
		t.Errorf("it is billed for %s", usage)
	}
}
