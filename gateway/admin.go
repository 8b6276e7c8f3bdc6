package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/upstream"
)

// Admin serves operators: /healthz (the process lives), /readyz (it can do its job), /status (what
// each upstream is doing and what was found), /status/failures (what became of the calls of each tool),
// /metrics (for Prometheus).
func (g *Gateway) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", g.serveHealth)
	mux.HandleFunc("GET /readyz", g.serveReady)
	mux.HandleFunc("GET /status", g.serveStatus)
	mux.HandleFunc("GET /status/failures", g.serveFailures)
	mux.Handle("GET /metrics", g.opts.Telemetry.Handler())
	return mux
}

// readyGrace is how long after the start an upstream that is still being connected, such as a cold
// child, holds up readiness.
const readyGrace = 15 * time.Second

// Ready reports whether requests can be served, and why not. After the start Headgate is ready once
// every upstream has ended its first attempt to connect, or 15 seconds have passed; from then on, what a
// reload connects is no reason not to be. As many upstreams as ready_upstreams says have to be up.
// Headgate is not ready while it drains.
func (g *Gateway) Ready() (ok bool, why string) {
	select {
	case <-g.drained:
		return false, "draining"
	default:
	}
	s := g.snapshot.Load()
	if !s.started && time.Since(g.started) < readyGrace {
		return false, "upstreams are being connected"
	}
	up := 0
	for _, u := range s.upstreams {
		if u.Status().State == upstream.Up {
			up++
		}
	}
	switch need := min(s.cfg.ReadyUpstreams, len(s.upstreams)); {
	case up >= need:
		return true, ""
	case up == 0:
		return false, "no upstream is up"
	default:
		return false, fmt.Sprintf("%d of at least %d upstreams are up", up, need)
	}
}

func (g *Gateway) serveReady(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	ok, why := g.Ready()
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, why+"\n")
		return
	}
	_, _ = io.WriteString(w, "ready\n")
}

// Status is what /status shows.
type Status struct {
	Ready     bool               `json:"ready"`
	Why       string             `json:"why,omitempty"`
	Tools     int                `json:"tools"`
	Prompts   int                `json:"prompts"`
	Resources int                `json:"resources"`
	Templates int                `json:"templates"`
	Sessions  int                `json:"sessions"`
	Upstreams []upstream.Status  `json:"upstreams"`
	Findings  []upstream.Finding `json:"findings"`
	Audit     *AuditStatus       `json:"audit,omitempty"`
}

// Status returns the current state for operators. It holds no secrets.
func (g *Gateway) Status() Status {
	s := g.snapshot.Load()
	st := Status{Tools: s.count(), Prompts: s.countOf(prompts), Resources: s.countOf(resources), Templates: s.countOf(templates),
		Sessions: g.sessions.count(), Upstreams: []upstream.Status{}, Findings: g.findings(s), Audit: g.auditor.Load().status()}
	st.Ready, st.Why = g.Ready()
	if st.Findings == nil {
		st.Findings = []upstream.Finding{}
	}
	for _, u := range s.upstreams {
		st.Upstreams = append(st.Upstreams, u.Status())
	}
	return st
}

func (g *Gateway) serveStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(g.Status())
}

// countOf is the same for another list.
func (s *snapshot) countOf(k kind) (n int) {
	for _, p := range s.parts {
		n += len(kindInfos[k].of(p.catalogue).Items)
	}
	return n
}

// ToolInfo is one exposed tool, prompt, resource or template for the command line.
type ToolInfo struct {
	Name       string          `json:"name"`     // exposed
	Server     string          `json:"server"`   // id of the owner
	Original   string          `json:"original"` // the owner's own name
	Definition json.RawMessage `json:"definition"`
}

// Tools returns what a caller is shown at the endpoint of a team, or of all its teams when team is "",
// in the order of tools/list. ok is false when there is no such endpoint for the caller.
func (g *Gateway) Tools(caller authz.Caller, team string) (list []ToolInfo, ok bool) {
	at, ok := g.admit(caller, endpoint(team))
	if !ok {
		return nil, false
	}
	list = make([]ToolInfo, 0, len(at.v.tools))
	for _, t := range at.v.tools {
		list = append(list, t.info())
	}
	return list, true
}

func (t *tool) info() ToolInfo {
	return ToolInfo{Name: t.name, Server: t.owner.ID(), Original: t.definition.Name, Definition: json.RawMessage(t.exposed)}
}

// Explained is a tool with what was decided about it for one caller, and by which rule.
type Explained struct {
	ToolInfo
	Decision authz.Decision `json:"decision"`
}

// Explain is Tools with the tools that the caller is not shown, and the reason for each. Without
// teams in the configuration everything is allowed, and there is nothing to explain.
func (g *Gateway) Explain(caller authz.Caller, team string) (list []Explained, ok bool) {
	at, ok := g.admit(caller, endpoint(team))
	if !ok {
		return nil, false
	}
	sc := at.v.scope
	tell := func(i int, d authz.Decision) { list = append(list, Explained{sc.tools[i].info(), d}) }
	if at.s.policy != nil {
		sc.decide(at.s.policy.Share(caller, at.v.teams), tell)
		return list, true
	}
	for i := range sc.tools {
		tell(i, everybody)
	}
	return list, true
}

// count is the number of tools of all upstreams.
func (s *snapshot) count() (n int) {
	for _, p := range s.parts {
		n += len(p.catalogue.Tools)
	}
	return n
}
