package pods

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
)

// maxReview is more than the largest object of a cluster, twice.
const maxReview = 8 << 20

// review is the AdmissionReview of admission.k8s.io/v1, as far as it matters here.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID       string          `json:"uid"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Operation string          `json:"operation"`
	Object    json.RawMessage `json:"object"`
}

type response struct {
	UID       string  `json:"uid"`
	Allowed   bool    `json:"allowed"`
	Status    *status `json:"status,omitempty"`
	Patch     []byte  `json:"patch,omitempty"`
	PatchType string  `json:"patchType,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Handler answers an API server that asks what is to become of a pod.
func Handler(o Options, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("POST /pods", func(w http.ResponseWriter, r *http.Request) {
		var in review
		if err := json.NewDecoder(io.LimitReader(r.Body, maxReview)).Decode(&in); err != nil || in.Request == nil || in.Kind != "AdmissionReview" {
			http.Error(w, "the body must be an AdmissionReview of admission.k8s.io/v1 with a request", http.StatusBadRequest)
			return
		}
		out := review{APIVersion: in.APIVersion, Kind: in.Kind, Response: &response{UID: in.Request.UID, Allowed: true}}
		if in.Request.Operation == "CREATE" {
			ops, err := Patch(in.Request.Object, o)
			switch {
			case err != nil:
				log.Info("pod refused", "namespace", in.Request.Namespace, "name", in.Request.Name, "error", err)
				out.Response.Allowed, out.Response.Status = false, &status{http.StatusUnprocessableEntity, "yunhe pool: " + err.Error()}
			case ops != nil:
				out.Response.PatchType = "JSONPatch"
				if out.Response.Patch, err = json.Marshal(ops); err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // to who may be gone
	})
	return mux
}
