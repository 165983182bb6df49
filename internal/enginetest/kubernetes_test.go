package enginetest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/enginetest"
)

// call sends one request to the API server and decodes its answer.
func call(t *testing.T, k *enginetest.Kubernetes, method, path string, body, into any) int {
	t.Helper()
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		sent = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, k.URL+path, sent)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+k.Token)
	req.Header.Set("Content-Type", "application/json")
	client := k.Client(1)
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		t.Fatalf("%s %s answered %s %s: %v", method, path, resp.Status, answer, err)
	}
	return resp.StatusCode
}

type object map[string]any

func TestKubernetes(t *testing.T) {
	t.Parallel()
	k := enginetest.KubernetesCluster(t)
	job := object{"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": "train"}, "spec": object{
		"template": object{"spec": object{"restartPolicy": "Never", "containers": []object{{"name": "main", "image": "none", "command": []string{"true"}}}}},
	}}
	const jobs, pods = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods?labelSelector=job-name%3Dtrain"
	var created, read struct {
		Metadata struct{ Name, UID string }
	}
	if status := call(t, k, http.MethodPost, jobs, job, &created); status != http.StatusCreated {
		t.Fatalf("create job answered %d", status)
	}
	if status := call(t, k, http.MethodGet, jobs+"/train", nil, &read); status != http.StatusOK || read != created || read.Metadata.UID == "" {
		t.Errorf("read job answered %d %+v, want %+v", status, read, created)
	}
	// The controller manager makes the pod, the scheduler says why it waits.
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var list struct {
			Items []struct {
				Metadata struct{ OwnerReferences []struct{ UID string } }
				Status   struct {
					Conditions []struct{ Type, Status, Reason string }
				}
			}
		}
		call(t, k, http.MethodGet, pods, nil, &list)
		if len(list.Items) == 1 && len(list.Items[0].Status.Conditions) > 0 {
			pod := list.Items[0]
			if c := pod.Status.Conditions[0]; c.Type != "PodScheduled" || c.Reason != "Unschedulable" {
				t.Errorf("condition = %+v, want unschedulable: there are no nodes", c)
			}
			if o := pod.Metadata.OwnerReferences; len(o) != 1 || o[0].UID != created.Metadata.UID {
				t.Errorf("pod is owned by %+v, want the job %s", o, created.Metadata.UID)
			}
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after 60 s the pods are %+v, want one that the scheduler has looked at", list.Items)
		case <-tick.C:
		}
	}
	load := enginetest.Load{Clients: 2, N: 6, Live: true}
	rate, err := k.MeasureJobs(t.Context(), load)
	checkRate(t, rate, err, "kubernetes", "api live", load)
	rate, err = k.MeasureLoss(t.Context(), load)
	checkRate(t, rate, err, "kubernetes", "etcd killed", load)
	if rate.Lost == nil || *rate.Lost != 0 {
		t.Errorf("lost = %v, want 0: what a process has written survives its death", rate.Lost)
	}
	k.Token = "wrong"
	var refused object
	if status := call(t, k, http.MethodGet, jobs, nil, &refused); status != http.StatusUnauthorized {
		t.Errorf("a wrong token answered %d, want 401", status)
	}
}
