package kubernetes

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestQuotaRefusesForNow: a quota that is used up is another refusal than a
// missing right.
func TestQuotaRefusesForNow(t *testing.T) {
	t.Parallel()
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	for _, c := range []struct {
		why  string
		want bool
	}{{"exceeded quota: work, requested: count/jobs.batch=1, used: count/jobs.batch=5, limited: count/jobs.batch=5", true}, {`User "x" cannot create resource`, false}} {
		err := refusedIfFinal(apierrors.NewForbidden(jobs, "att", errors.New(c.why)))
		var no refused
		var later forNow
		if errors.As(err, &later) != c.want || c.want && !errors.As(err, &no) {
			t.Errorf("%s: %v, for now %v, want %v", c.why, err, errors.As(err, &later), c.want)
		}
	}
}
