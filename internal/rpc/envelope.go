package rpc

import (
	"fmt"
	"net/http"
	"slices"

	"yunhe.dev/yunhe/internal/fault"
)

// Envelope is the answer form of T/AI 123.6, annex A: Status is the HTTP
// status, Code a stable identifier, ErrorMsg at most 128 characters.
type Envelope struct {
	Status   int          `json:"status"`
	Code     string       `json:"code"`
	ErrorMsg string       `json:"errorMsg"`
	Data     any          `json:"data"`
	Details  []fieldError `json:"details,omitempty"`
}

// WriteEnvelope answers success with data.
func WriteEnvelope(w http.ResponseWriter, data any) {
	writeJSON(w, http.StatusOK, Envelope{Status: http.StatusOK, Code: "OK", Data: data})
}

// WriteEmptyEnvelope answers success without a data member (A.2).
func WriteEmptyEnvelope(w http.ResponseWriter) {
	writeJSON(w, http.StatusOK, struct {
		Status   int    `json:"status"`
		Code     string `json:"code"`
		ErrorMsg string `json:"errorMsg"`
	}{http.StatusOK, "OK", ""})
}

// FailEnvelope answers an error; it is the error form for [Server.RawErrors].
func FailEnvelope(w http.ResponseWriter, _ *http.Request, err error) {
	kind := fault.KindOf(err)
	status := Status(err)
	if kind == fault.TooLarge { // the annex's statuses have no 413
		status = http.StatusBadRequest
	}
	e := Envelope{Status: status, Code: kind.String(), ErrorMsg: Text(err)}
	if r := []rune(e.ErrorMsg); len(r) > 128 {
		e.ErrorMsg = string(r[:127]) + "…"
	}
	for _, f := range fault.FieldsOf(err) {
		e.Details = append(e.Details, fieldError{f.Path, f.Problem})
	}
	writeJSON(w, status, e)
}

// OnlyParams returns fault.Invalid if the request has a query parameter that
// is not named.
func OnlyParams(r *http.Request, names ...string) error {
	for k := range r.URL.Query() {
		if !slices.Contains(names, k) {
			return fault.Fields(fault.Field{Path: clip(k, 64), Problem: fmt.Sprintf("is not a parameter here; known are %v", names)})
		}
	}
	return nil
}
