package access

import (
	"testing"

	"yunhe.dev/yunhe/internal/registry"
)

// TestClass: a center that is connected another way than its class is does not
// meet the conditions of access. What others connect with is theirs to say.
func TestClass(t *testing.T) {
	t.Parallel()
	var byClass *Rule
	for _, r := range defaultRules() {
		if r.ID == "center-class" {
			byClass = &r
			break
		}
	}
	if err := byClass.check(); err != nil {
		t.Fatal(err)
	}
	v := &view{snap: &registry.Snapshot{}, chips: map[string][]string{"gpus": {"A100"}}}
	for _, x := range []struct {
		id, adapter, tier, class string
		want                     Status // 0: not judged
	}{
		{"gw-edge", "gateway", "edge", "edge", Compliant},
		{"k8s-edge", "kubernetes", "edge", "edge", NonCompliant},
		{"slurm-edge", "slurm", "edge", "edge", NonCompliant},
		{"slurm-core", "slurm", "core", "super", Compliant},
		{"k8s-core", "kubernetes", "core", "general", Compliant},
		{"gpus", "kubernetes", "core", "intelligent", Compliant},
		{"own-edge", "my-own", "edge", "edge", 0},
	} {
		facts := v.facts(&registry.Center{ID: x.id, Adapter: x.adapter, Labels: map[string]string{"tier": x.tier}})
		status, verdicts := judge([]*Rule{byClass}, Center, facts)
		switch {
		case facts["class"] != x.class || classify(status, facts) != x.class && status == Compliant:
			t.Errorf("%s is of class %v, want %s", x.id, facts["class"], x.class)
		case x.want == 0 && len(verdicts) != 0, x.want != 0 && (len(verdicts) != 1 || verdicts[0].Status != x.want):
			t.Errorf("%s: %v, want %d", x.id, verdicts, x.want)
		}
	}
}
