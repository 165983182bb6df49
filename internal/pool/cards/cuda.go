package cards

import (
	"encoding/json"
	"errors"
)

// CUDA is a device as the driver of CUDA (libcuda) shows it.
type CUDA struct {
	Model  string `json:"model"`
	Driver string `json:"driver"` // the version of CUDA that it has
	UUID   string `json:"uuid"`
	Bus    string `json:"bus"` // as [Bus] writes it
	Units  int64  `json:"units"`
	Memory int64  `json:"memory_bytes"`
	Pages  bool   `json:"pages,omitempty"` // what is on it goes to the host and back when kernels need it
}

// CUDAAnswer is what a process says that asks it.
type CUDAAnswer struct {
	Devices []CUDA `json:"devices"`
	Error   string `json:"error,omitempty"`
}

// ReadCUDA reads what makers.ServeCUDA wrote.
func ReadCUDA(b []byte) ([]CUDA, error) {
	var a CUDAAnswer
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, err
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return a.Devices, nil
}
