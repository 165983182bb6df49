package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
)

// The paths of T/AI 123.6, annex A. Names and shapes are the standard's.

type trainTask struct {
	Name           string `json:"name"`
	Command        string `json:"command"`
	ImageID        string `json:"imageId"`
	ResourceSpecID string `json:"resourceSpecId"`
	ReplicaNumber  int32  `json:"replicaNumber"`
}

type trainInfo struct {
	trainTask
	CenterIDs     []string `json:"centerIDs"`
	ReplicaStatus []string `json:"replicaStatus"`
}

// placeWait is how long A.1 waits for the placement it answers with; on a
// platform with room it takes a few milliseconds.
const placeWait = 300 * time.Millisecond

// parseTrainJob reads the body of A.1: tasks is an array, or an object whose
// members task1…taskN are the tasks in numeric order.
func parseTrainJob(body []byte) (*jobsv1.JobSpec, error) {
	var in struct {
		Name  string          `json:"name"`
		Tasks json.RawMessage `json:"tasks"`
	}
	if err := strict(body, &in); err != nil {
		return nil, badJSON("", err)
	}
	raws, err := taskList(in.Tasks)
	if err != nil {
		return nil, err
	}
	spec := &jobsv1.JobSpec{Name: in.Name}
	for i, raw := range raws {
		var t trainTask
		if err := strict(raw, &t); err != nil {
			return nil, badJSON(fmt.Sprintf("tasks[%d]", i), err)
		}
		spec.Tasks = append(spec.Tasks, &jobsv1.Task{Name: t.Name, Command: t.Command, ImageId: t.ImageID, ResourceSpecId: t.ResourceSpecID, ReplicaNumber: t.ReplicaNumber})
	}
	return spec, nil
}

// strict decodes one JSON value and refuses unknown members and what follows.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

func badJSON(path string, err error) error {
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		field := te.Field
		if path != "" {
			field = strings.TrimSuffix(path+"."+te.Field, ".")
		}
		if field == "" {
			field = "body"
		}
		return fault.Fields(fault.Field{Path: field, Problem: fmt.Sprintf("must be %s, got %s", jsonName(te.Type.Kind().String()), te.Value)})
	}
	msg := strings.TrimPrefix(err.Error(), "json: ")
	if path == "" {
		path = "body"
	}
	return fault.Fields(fault.Field{Path: path, Problem: "is not the JSON expected: " + clip(msg)})
}

func jsonName(kind string) string {
	switch kind {
	case "int32":
		return "an integer"
	case "string":
		return "a string"
	default:
		return "an object"
	}
}

func taskList(raw json.RawMessage) ([]json.RawMessage, error) {
	trimmed := bytes.TrimSpace(raw)
	switch {
	case len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null")):
		return nil, fault.Fields(fault.Field{Path: "tasks", Problem: "is required"})
	case trimmed[0] == '[':
		var list []json.RawMessage
		if err := strict(raw, &list); err != nil {
			return nil, badJSON("tasks", err)
		}
		return list, nil
	case trimmed[0] != '{':
		return nil, fault.Fields(fault.Field{Path: "tasks", Problem: "must be an array or an object of task1…taskN"})
	}
	var byName map[string]json.RawMessage
	if err := strict(raw, &byName); err != nil {
		return nil, badJSON("tasks", err)
	}
	type numbered struct {
		n   int
		raw json.RawMessage
	}
	var list []numbered
	for name, r := range byName {
		n, err := strconv.Atoi(strings.TrimPrefix(name, "task"))
		if err != nil || n < 1 || name != fmt.Sprintf("task%d", n) {
			return nil, fault.Fields(fault.Field{Path: "tasks." + clip(name), Problem: "must be named task1, task2, …"})
		}
		list = append(list, numbered{n, r})
	}
	slices.SortFunc(list, func(a, b numbered) int { return a.n - b.n })
	out := make([]json.RawMessage, len(list))
	for i, x := range list {
		out[i] = x.raw
	}
	return out, nil
}

func (h handler) trainCreate(w http.ResponseWriter, r *http.Request) error {
	if err := rpc.OnlyParams(r); err != nil {
		return err
	}
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return fault.New(fault.TooLarge, "the body must be at most %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "the body cannot be read")
	}
	spec, err := parseTrainJob(body)
	if err != nil {
		return err
	}
	ids, err := h.s.Submit(r.Context(), r.Header.Get("Idempotency-Key"), []*jobsv1.JobSpec{spec}, false)
	if err != nil {
		return trainPaths(err)
	}
	h.s.awaitPlacement(r.Context(), ids[0])
	j, err := h.s.Get(r.Context(), ids[0])
	if err != nil {
		return err
	}
	type info struct {
		Name      string   `json:"name"`
		CenterIDs []string `json:"centerIDs"`
	}
	infos := make([]info, len(j.Spec.Tasks))
	for i, t := range j.Spec.Tasks {
		infos[i] = info{t.Name, centersOfTask(j, i)}
	}
	rpc.WriteEnvelope(w, map[string]any{"jobId": j.JobId, "taskInfos": infos})
	return nil
}

// trainPaths writes field names as annex A has them.
func trainPaths(err error) error {
	fields := fault.FieldsOf(err)
	if len(fields) == 0 {
		return err
	}
	out := make([]fault.Field, len(fields))
	r := strings.NewReplacer("job.", "", "image_id", "imageId", "resource_spec_id", "resourceSpecId", "replica_number", "replicaNumber")
	for i, f := range fields {
		out[i] = fault.Field{Path: r.Replace(f.Path), Problem: f.Problem}
	}
	if fault.KindOf(err) != fault.Invalid {
		return err
	}
	return fault.Fields(out...)
}

// awaitPlacement waits a little for a job to be placed.
func (s *Service) awaitPlacement(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, placeWait)
	defer cancel()
	enough := errors.New("placed")
	// It ends by its deadline, or because the job is placed or gone.
	_ = s.watch(ctx, id, func(j *jobsv1.Job) error {
		if j.PlacedAt != nil {
			return enough
		}
		return nil
	})
}

// centersOfTask lists the centers of a task's replicas, each once, by replica.
func centersOfTask(j *jobsv1.Job, task int) []string {
	out := []string{}
	for _, r := range j.Replicas {
		if int(r.TaskIndex) == task && r.AiCenterId != "" && !slices.Contains(out, r.AiCenterId) {
			out = append(out, r.AiCenterId)
		}
	}
	return out
}

// trainStatus gives a state the name annex A has for it (decision 4).
func trainStatus(s State) string {
	switch s {
	case running, jobsv1.State_STATE_MIGRATING, stopping:
		return "running"
	case succeeded:
		return "completed"
	case failed, stopped:
		return "failed"
	default:
		return "pending"
	}
}

func (h handler) trainStop(w http.ResponseWriter, r *http.Request) error {
	if err := rpc.OnlyParams(r); err != nil {
		return err
	}
	if _, err := h.s.Stop(r.Context(), r.PathValue("id"), ""); err != nil {
		return err
	}
	rpc.WriteEmptyEnvelope(w)
	return nil
}

func (h handler) trainGet(w http.ResponseWriter, r *http.Request) error {
	if err := rpc.OnlyParams(r); err != nil {
		return err
	}
	j, err := h.s.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	infos := make([]trainInfo, len(j.Spec.Tasks))
	for i, t := range j.Spec.Tasks {
		infos[i] = trainInfo{trainTask: trainTask{t.Name, t.Command, t.ImageId, t.ResourceSpecId, t.ReplicaNumber}, CenterIDs: centersOfTask(j, i), ReplicaStatus: []string{}}
	}
	for _, x := range j.Replicas {
		infos[x.TaskIndex].ReplicaStatus = append(infos[x.TaskIndex].ReplicaStatus, trainStatus(x.State))
	}
	rpc.WriteEnvelope(w, map[string]any{"jobId": j.JobId, "name": j.Spec.Name, "status": trainStatus(j.State), "detailStatus": StateName(j.State),
		"reason": j.Reason, "message": j.Message, "taskInfos": infos})
	return nil
}

func (h handler) trainLog(w http.ResponseWriter, r *http.Request) error {
	if err := rpc.OnlyParams(r); err != nil {
		return err
	}
	j, err := h.s.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	task, replica, err := locate(j, r.PathValue("task"), r.PathValue("replica"))
	if err != nil {
		return err
	}
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	rpc.WriteEnvelope(w, map[string]string{"logUrl": scheme + "://" + r.Host + h.s.logLink(j.JobId, task, replica)})
	return nil
}
