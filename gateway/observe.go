package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// trace begins the span of a request under the trace that the client brought.
func (g *Gateway) trace(ctx context.Context, x *exchange, m wire.Message) context.Context {
	x.size = len(m.Params)
	x.account.Read(m.Params, x.header)
	ctx, x.span = g.opts.Telemetry.StartServer(ctx, m.Method, &x.account)
	return ctx
}

// count ends the span of a request and counts it.
func (g *Gateway) count(ctx context.Context, x *exchange, v verdict, took time.Duration) {
	if g.opts.Telemetry == nil {
		return
	}
	o := telemetry.Operation{
		Method:    x.method,
		Tool:      x.routed.tool,
		Upstream:  x.routed.upstream,
		Team:      x.team(),
		Version:   x.spoken(),
		Transport: telemetry.TransportTCP,
		Outcome:   v.outcome,
		ErrorType: v.errorType(),
		Code:      v.code,
	}
	if x.header == nil {
		o.Transport = telemetry.TransportPipe
	}
	if x.span.Recorded() {
		o.RequestID = idText(x.id)
		if x.session != nil && x.header != nil {
			o.Session = x.session.id
		}
	}
	g.opts.Telemetry.EndServer(ctx, x.span, &o, took)
}

// idText is a request id without the quotes of a string.
func idText(id wire.ID) string {
	if s, ok := wire.String([]byte(id)); ok {
		return s
	}
	return string(id)
}

// team names the teams whose limits apply to a request, in one word: several are joined, and the request counts
// once. A request that went to no tool belongs to all teams that it could have found one in.
func (x *exchange) team() string {
	teams := x.routed.teams
	if x.routed.tool == "" && x.v != nil {
		teams = x.v.teams
	}
	if len(teams) == 1 {
		return teams[0]
	}
	return strings.Join(teams, ",")
}

// spoken is the protocol version of a request, or "" where none was agreed.
func (x *exchange) spoken() string {
	switch {
	case x.era == upstream.Modern:
		return modernVersion
	case x.session != nil:
		return x.session.spoken()
	}
	return x.version
}

// logAccess writes the line that tells of a request: of a call always, of others for those who look for them.
func (g *Gateway) logAccess(ctx context.Context, x *exchange, v verdict, took time.Duration) {
	level, text := slog.LevelDebug, "request"
	if x.method == "tools/call" {
		level, text = slog.LevelInfo, "call"
	}
	if v.failed != nil {
		level = slog.LevelWarn
	}
	if !g.callLog.Enabled(ctx, level) {
		return
	}
	set := make([]slog.Attr, 0, 20)
	add := func(key, value string) {
		if value != "" {
			set = append(set, slog.String(key, value))
		}
	}
	add("method", atMost(x.method, 128))
	add("team", x.team())
	add("subject", subject(x.caller, x.s.cfg.Log.Subject))
	add("tool", x.routed.tool)
	add("upstream", x.routed.upstream)
	add("outcome", v.outcome)
	if e := v.errorType(); e != v.outcome {
		add("reason", e)
	}
	if v.failed != nil {
		add("reason", string(v.failed.Reason))
		add("sent", string(v.failed.Outcome))
	}
	set = append(set,
		slog.Float64("took_ms", milliseconds(took)),
		slog.Float64("upstream_ms", milliseconds(x.account.Upstream)),
		slog.Float64("queue_ms", milliseconds(x.account.Queue)),
		slog.Int("attempts", x.account.Attempts),
		slog.Int("request_bytes", x.size),
		slog.Int("answer_bytes", v.size))
	add("request_id", atMost(idText(x.id), 128))
	add("trace_id", telemetry.TraceOf(ctx, &x.account))
	if v.failed != nil && v.failed.Cause != nil && x.routed.owner != nil {
		add("error", x.routed.owner.Redact(wire.Bare(v.failed.Cause)))
	}
	g.callLog.LogAttrs(ctx, level, text, set...)
}

func atMost(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// milliseconds rounds to microseconds, for readers.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// subject is what the log shows of a caller.
func subject(c authz.Caller, how string) string {
	switch how {
	case configs.SubjectNone:
		return ""
	case configs.SubjectHash:
		sum := sha256.Sum256([]byte(c.Key()))
		return hex.EncodeToString(sum[:8])
	}
	return c.Subject
}

// gauges is what there is to see at this moment.
func (g *Gateway) gauges() telemetry.State {
	s := g.snapshot.Load()
	out := telemetry.State{
		InFlight: g.inFlight.Load(),
		Sessions: int64(g.sessions.count()),
		Findings: make(map[telemetry.FindingKey]int64),
	}
	for i, u := range s.upstreams {
		st := u.Status()
		out.Upstreams = append(out.Upstreams, telemetry.UpstreamState{ID: st.ID, Team: s.owners[i], Up: st.State == upstream.Up, Tools: int64(st.Tools)})
	}
	for _, f := range s.findings {
		out.Findings[telemetry.FindingKey{Upstream: f.Server, Rule: f.Rule}]++
	}
	return out
}

// sessionOver tells of a session of a client over HTTP that has ended.
func (o *Options) sessionOver(s *session) {
	o.Telemetry.ServerSession(s.spoken(), telemetry.TransportTCP, time.Since(s.began))
}
