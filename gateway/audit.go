package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/configs"
)

// Events of the audit log. A call that is sent has two records of one id; one that is not has one.
const (
	auditCall    = "call"    // about to be sent
	auditEnd     = "end"     // was sent, and has ended
	auditRefused = "refused" // was not sent
)

// auditRecord is one line of the audit log.
type auditRecord struct {
	Time  string `json:"time"` // RFC 3339 with nanoseconds, UTC
	ID    string `json:"id"`   // the same in all records of a call
	Event string `json:"event"`

	// Who and what: in every record but auditEnd, which is joined by ID.
	Subject  string          `json:"subject,omitempty"`
	Issuer   string          `json:"issuer,omitempty"`
	Teams    []string        `json:"teams,omitempty"`
	Endpoint string          `json:"endpoint,omitempty"` // path of the MCP endpoint
	Client   string          `json:"client,omitempty"`   // http, stdio or local
	Session  string          `json:"session,omitempty"`  // digest of the session id
	Request  json.RawMessage `json:"request,omitempty"`  // the client's JSON-RPC id
	TraceID  string          `json:"trace_id,omitempty"`
	Tool     string          `json:"tool,omitempty"` // exposed name, or what the client asked for
	Upstream string          `json:"upstream,omitempty"`
	Decision string          `json:"decision,omitempty"`
	Rule     string          `json:"rule,omitempty"`
	// The arguments, as configured.
	Arguments       json.RawMessage `json:"arguments,omitempty"`
	ArgumentsSHA256 string          `json:"arguments_sha256,omitempty"`

	// What became of it: in auditEnd and auditRefused.
	Outcome    string   `json:"outcome,omitempty"`
	Code       int64    `json:"code,omitempty"`
	Effect     string   `json:"effect,omitempty"` // not_started, refused or unknown; of a failure of Headgate's own
	DurationMS *float64 `json:"duration_ms,omitempty"`
}

// Decisions of the audit log.
const (
	auditAllowed = "allowed"
	auditDenied  = "denied"
	auditStepUp  = "step_up" // allowed once more scopes are granted
)

// auditEntry is one call in the audit log. A nil one records nothing.
type auditEntry struct {
	auditor *auditor
	held    bool
	id      string
	name    string // that the client asked for
	began   time.Time
	sent    bool   // its first record is written, or on its way
	to      string // the server that this record names
	lost    bool   // its first record cannot be written, and the call is refused for it
}

// beginAudit begins the entry of a call, if there is an audit log and none has begun.
func (g *Gateway) beginAudit(x *exchange, name string) {
	if x.audit != nil {
		return
	}
	for {
		a := g.auditor.Load()
		if a == nil {
			return
		}
		held := a.acquire()
		if !held && a != g.auditor.Load() {
			continue // a reload has put another in its place
		}
		x.audit = &auditEntry{auditor: a, held: held, id: rand.Text(), name: name, began: time.Now()}
		return
	}
}

// sending records a call that is about to be sent, once for each server that it is for. It is not to be sent if ok is
// false; then answer is the answer.
func (e *auditEntry) sending(ctx context.Context, x *exchange) (a answer, ok bool) {
	if e == nil || e.sent && e.to == x.routed.upstream {
		return answer{}, true
	}
	e.to = x.routed.upstream
	patient, cancel := context.WithTimeout(ctx, auditPatience)
	defer cancel()
	err := e.auditor.write(patient, e.line(x, auditRecord{Event: auditCall}))
	switch {
	case err == nil:
		e.sent = true
	case ctx.Err() != nil:
		return answer{silent: true}, false
	default:
		incident := e.auditor.failed(err)
		if e.auditor.cfg.Required {
			e.lost = true
			return unrecorded(x.routed.upstream, incident), false
		}
		e.sent = true
	}
	return answer{}, true
}

// end records what became of a call.
func (e *auditEntry) end(x *exchange, v verdict) {
	if e == nil {
		return
	}
	if e.held {
		defer e.auditor.release()
	}
	took := float64(time.Since(e.began).Microseconds()) / 1000
	r := auditRecord{Event: auditRefused, Outcome: v.outcome, Code: v.code, DurationMS: &took}
	if v.failed != nil {
		r.Effect = string(v.failed.Outcome)
	}
	if e.sent {
		r.Event = auditEnd
	}
	if e.lost {
		// The first record may still be written, and this one then says that nothing came of it.
		_ = e.auditor.file.Offer(e.line(x, r))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), auditPatience)
	defer cancel()
	if err := e.auditor.write(ctx, e.line(x, r)); err != nil {
		e.auditor.failed(err)
	}
}

// line is a record as a line.
func (e *auditEntry) line(x *exchange, r auditRecord) []byte {
	r.Time = time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z07:00")
	r.ID = e.id
	if r.Event != auditEnd {
		e.describe(x, &r)
	}
	b, err := json.Marshal(r)
	if err != nil {
		// What came from outside, such as arguments nested too deeply, must not make a call vanish from the log.
		if r.Arguments != nil {
			r.ArgumentsSHA256 = argumentsHash(jsontext.Value(r.Arguments))
		}
		r.Request, r.Arguments = nil, nil
		b, _ = json.Marshal(r)
	}
	return append(escapeControls(b), '\n')
}

// Bounds, in bytes, of what a client can put into a record besides arguments.
const (
	maxAuditName    = 256
	maxAuditRequest = 128
)

// describe fills in who calls what, and what was decided.
func (e *auditEntry) describe(x *exchange, r *auditRecord) {
	r.Subject, r.Issuer, r.Teams = x.caller.Subject, x.caller.Issuer, x.caller.Teams
	r.Endpoint, r.Client, r.TraceID = x.at.path(), "http", x.traceID()
	switch {
	case x.header == nil && x.id == "":
		r.Client = "local"
	case x.header == nil:
		r.Client = "stdio"
	}
	if id := x.header.Get(sessionHeader); id != "" {
		// The id itself lets its holder act on the session.
		sum := sha256.Sum256([]byte(id))
		r.Session = hex.EncodeToString(sum[:8])
	}
	if len(x.id) > 0 && len(x.id) <= maxAuditRequest {
		r.Request = json.RawMessage(x.id)
	}
	r.Tool, r.Upstream = cutText(e.name, maxAuditName), x.routed.upstream
	var owner string
	if r.Decision, r.Rule, owner = x.explain(e.name); r.Upstream == "" {
		r.Upstream = owner
	}
	args, _ := x.params.Get("arguments")
	switch {
	case args == nil:
	case e.auditor.cfg.Arguments == configs.ArgumentsFull:
		r.Arguments = json.RawMessage(args)
	case e.auditor.cfg.Arguments == configs.ArgumentsHash:
		r.ArgumentsSHA256 = argumentsHash(args)
	}
}

// explain asks the policy again what it says of a name, and which rule says so: a view only knows what came
// of it.
func (x *exchange) explain(name string) (decision, rule, owner string) {
	sc := x.v.scope
	i, ok := sc.byName[name]
	switch {
	case !ok:
		return auditDenied, "there is no tool of this name", ""
	case x.s.policy == nil:
		return auditAllowed, "no teams are configured, so everybody may use everything", ""
	}
	all, holder := sc.settle(x.s.policy.Share(x.caller, x.v.teams), i, nil)
	if holder < 0 {
		return auditDenied, all[0].Why, sc.items[i].Server
	}
	decision = auditAllowed
	if all[holder].Scopes != nil {
		decision = auditStepUp
	}
	return decision, all[holder].Why, sc.items[i+holder].Server
}

// argumentsHash is the SHA-256 of arguments in canonical form, RFC 8785, save that integers keep all their
// digits; so two calls have one hash only if they mean the same.
func argumentsHash(args jsontext.Value) string {
	c := slices.Clone(args)
	if err := c.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		c = args
	}
	sum := sha256.Sum256(c)
	return hex.EncodeToString(sum[:])
}

func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// escapeControls escapes what JSON allows in strings as it is and a terminal or a reader of lines would act
// on: DEL, the C1 controls, line separators, and the marks that turn the direction of text. What is no UTF-8
// becomes U+FFFD.
func escapeControls(b []byte) []byte {
	plain := true
	for _, c := range b {
		if c >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, `\ufffd`...)
		case r >= 0x7f && r <= 0x9f, r >= 0x2028 && r <= 0x202e, r >= 0x200b && r <= 0x200f, r >= 0x2066 && r <= 0x2069, r == 0xfeff:
			const digits = "0123456789abcdef"
			out = append(out, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
		default:
			out = append(out, b[:size]...)
		}
		b = b[size:]
	}
	return out
}
