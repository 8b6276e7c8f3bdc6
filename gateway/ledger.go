package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/ledger"
	"github.com/headgate/headgate/internal/wire"
)

// newLedger makes the failure ledger of a configuration.
func newLedger(cfg *configs.Config) *ledger.Ledger {
	outcomes := []string{outcomeOK, outcomeToolError, outcomeProtocolError, outcomeCancelled}
	for _, r := range reasons {
		outcomes = append(outcomes, string(r))
	}
	l := ledger.New(time.Now().UTC(), outcomes...)
	l.KeepTexts(cfg.Failures.Texts)
	return l
}

// reasons are all reasons of failure.
var reasons = []failure.Reason{failure.Unavailable, failure.BreakerOpen, failure.Overloaded, failure.CredentialsRefused, failure.Timeout,
	failure.ConnectionLost, failure.BadUpstreamAnswer, failure.RateLimited, failure.ConcurrencyLimited, failure.Guarded,
	failure.InvalidArguments, failure.InvalidResult, failure.InputRefused, failure.Internal}

// remember puts a tools/call that has been answered into the failure ledger, and ends its audit record. A failure of Headgate's own
// is told by its reason alone.
func (g *Gateway) remember(x *exchange, a answer, v verdict) {
	if x.method != "tools/call" {
		return
	}
	// A bug in what is told of a call must not cost its answer.
	g.contain("telling of a call", func() answer {
		x.audit.end(x, v)
		g.countCall(x, a, v)
		return answer{}
	})
}

func (g *Gateway) countCall(x *exchange, a answer, v verdict) {
	g.ledger.Count(x.routed.tool, x.routed.upstream, v.outcome)
	if v.outcome != outcomeToolError && v.outcome != outcomeProtocolError || !g.ledger.KeepsTexts() {
		return
	}
	f := ledger.Failure{Tool: x.routed.tool, Upstream: x.routed.upstream, Outcome: v.outcome, Code: v.code, TraceID: x.traceID(), Time: time.Now().UTC()}
	if a.err != nil {
		_, f.Text, _ = wire.ErrorCode(a.err)
	} else {
		f.Text = resultText(a.result)
	}
	g.ledger.Note(f)
}

// resultText is what the text blocks of a result say, as much of it as the ledger looks at. A block that is
// a JSON object, as servers wrap the answers of an API, is told by the members of it that speak of an error.
func resultText(result jsontext.Value) string {
	obj, err := wire.ParseObject(result)
	if err != nil {
		return ""
	}
	content, _ := obj.Get("content")
	var b strings.Builder
	for raw, err := range wire.Elements(content) {
		if err != nil || b.Len() >= ledger.MaxInput {
			break
		}
		block, err := wire.ParseObject(raw)
		if err != nil {
			continue
		}
		if typ, _ := block.Get("type"); string(typ) != `"text"` {
			continue
		}
		raw, _ = block.Get("text")
		text, _ := wire.String(raw)
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if told := errorMembers(text, 0); told != "" {
			text = told
		}
		b.WriteString(text[:min(len(text), ledger.MaxInput+1)])
	}
	return b.String()
}

// errorMembers is what a JSON object says of an error, or "" if the text is none or says nothing of one. Some
// wrap the error in another.
func errorMembers(text string, depth int) string {
	const most, deepest = 64 << 10, 2 // more is no message
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") || len(text) > most || depth > deepest {
		return ""
	}
	obj, err := wire.ParseObject(jsontext.Value(text))
	if err != nil {
		return ""
	}
	var parts []string
	for _, name := range []string{"error", "code", "title", "message", "error_description", "detail", "reason"} {
		v, _ := obj.Get(name)
		if s, ok := wire.String(v); ok {
			parts = append(parts, s)
		} else if v.Kind() == '{' && name == "error" {
			if s := errorMembers(string(v), depth+1); s != "" {
				parts = append(parts, s)
			}
		}
	}
	return strings.Join(parts, ": ")
}

// traceID is the id of the trace that a request belongs to: of its span, else the one that the client says, or ""
// (W3C Trace Context, "traceparent").
func (x *exchange) traceID() string {
	if id := x.span.TraceID(); id != "" {
		return id
	}
	return x.account.TraceID()
}

// FailureReport is what /status/failures shows. It holds no arguments and no results; its texts are masked.
type FailureReport = ledger.Report

// Failures tells what became of the calls of each tool since the start; of one if name is not "". ok is
// false when there is no tool of that name and there never was a call to one.
func (g *Gateway) Failures(name string) (r FailureReport, ok bool) {
	r = g.ledger.Report(name)
	return r, name == "" || len(r.Tools) > 0 || g.snapshot.Load().tools.named(name)
}

// named reports whether a tool is exposed under a name, at the endpoint of anybody.
func (ts *tools) named(name string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for k := range ts.all {
		if k.name == name {
			return true
		}
	}
	return false
}

func (g *Gateway) serveFailures(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("tool")
	report, ok := g.Failures(name)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		_ = enc.Encode(map[string]string{"error": "unknown tool", "tool": name})
		return
	}
	_ = enc.Encode(report)
}
