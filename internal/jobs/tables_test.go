package jobs_test

import (
	"encoding/json"
	"testing"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// TestStandardRecords: a job and what is sent of it to a center have every
// field that Tables 7 and 9 of T/AI 123.6 name.
func TestStandardRecords(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		c := a.Join(t, apptest.Center{ID: "c-records"})
		ctx := t.Context()
		if _, err := a.Admin.Identity.CreateUser(ctx, &identityv1.CreateUserRequest{User: &identityv1.User{UserId: "u-records", TenantId: "default", Name: "Ada Wu", Role: identityv1.Role_ROLE_USER}}); err != nil {
			t.Fatal(err)
		}
		k, err := a.Admin.Identity.CreateKey(ctx, &identityv1.CreateKeyRequest{UserId: "u-records"})
		if err != nil {
			t.Fatal(err)
		}
		u := apptest.NewClient(a.URL(), k.Secret)
		spec := c.Pin(apptest.Job("train", 1))
		spec.Desc, spec.Tasks[0].Command = "a first try", "python train.py"
		id := u.Submit(t, spec)
		r := c.Await(1)[0]

		var job struct {
			JobID, UserName, CreatedUser string
			Spec                         struct {
				Name, Desc string
				Tasks      []struct{ Name, Command, ImageID, ResourceSpecID string }
			}
		}
		answer := u.REST(t, "GET", "/v1/jobs/"+id, "")
		if err := json.Unmarshal(answer.Body, &job); err != nil || answer.Status != 200 {
			t.Fatalf("%d %s: %v", answer.Status, answer.Body, err)
		}
		if job.JobID != id || job.UserName != "u-records" || job.CreatedUser != "Ada Wu" || job.Spec.Name != "train" || job.Spec.Desc != "a first try" || len(job.Spec.Tasks) != 1 {
			t.Errorf("Table 7: %s", answer.Body)
		}
		if task := job.Spec.Tasks[0]; task.Name != "main" || task.Command != "python train.py" || task.ImageID != "host" || task.ResourceSpecID != "small" {
			t.Errorf("Table 8: %s", answer.Body)
		}
		if sent := c.Last(r.AttemptId); sent.GetName() != "main" || sent.GetCommand() != "python train.py" || sent.GetImageId() != "host" || sent.GetResourcespecId() != "small" {
			t.Errorf("Table 9: {%v}", sent)
		}
	})
}
