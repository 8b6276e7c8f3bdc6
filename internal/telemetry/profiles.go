package telemetry

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"runtime"
	"runtime/debug"
)

// Memory is what the runtime of a process says of its memory. All but Mallocs are bytes.
type Memory struct {
	Mallocs   uint64 `json:"mallocs"`   // objects allocated since the start
	Allocated uint64 `json:"allocated"` // the same in bytes
	Heap      uint64 `json:"heap"`      // in use
	Stacks    uint64 `json:"stacks"`
	System    uint64 `json:"system"` // obtained from the system
}

// Profiles serves what the runtime knows of the process: profiles under /debug/pprof/, and a [Memory] at
// /debug/memory, with ?gc=1 after garbage has been collected and given back. It tells everybody who can reach it what the process is doing, and lets
// them slow it down, so it belongs on a loopback address.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/memory", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("gc") {
			debug.FreeOSMemory()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Memory{Mallocs: m.Mallocs, Allocated: m.TotalAlloc, Heap: m.HeapInuse, Stacks: m.StackInuse, System: m.Sys})
	})
	return mux
}
