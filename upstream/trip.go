package upstream

import (
	"context"
	"errors"
	"strconv"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
)

// trip is one round trip to the server, as traces and metrics tell of it.
type trip struct {
	*telemetry.Trip
	u *Upstream
}

// startTrip begins a round trip. account is that of the call it belongs to; nil for a request of Headgate's own.
func (u *Upstream) startTrip(ctx context.Context, method string, account *telemetry.Account) trip {
	return trip{u.opts.Telemetry.StartTrip(ctx, method, u.cfg.ID, account), u}
}

// heard notes a notification that came meanwhile.
func (t trip) heard(m wire.Message) {
	if m.Method == "notifications/progress" {
		t.Progress()
	}
}

// over returns the function through which the answer goes on its way back. tool is the server's own name of what is
// called, or "".
func (t trip) over(ctx context.Context, p *peer, r *request, tool string) func(wire.Message, error) (wire.Message, error) {
	return func(m wire.Message, err error) (wire.Message, error) {
		o := telemetry.Operation{
			Method:    r.method,
			Tool:      tool,
			Upstream:  t.u.cfg.ID,
			Version:   p.version,
			RequestID: strconv.FormatInt(r.id, 10),
			Transport: t.u.network(),
		}
		if r.clock != nil {
			o.Away = r.clock.given
		}
		tellOutcome(ctx, &o, m, err)
		t.End(&o)
		return m, err
	}
}

// failed ends the trip of a try after which there is another.
func (t trip) failed(p *peer, r *request, tool string, reason failure.Reason) {
	t.over(context.Background(), p, r, tool)(wire.Message{}, &failure.Failure{Reason: reason})
}

// network is the network.transport of the connection.
func (u *Upstream) network() string {
	if u.opts.Embedded != nil || u.cfg.Type == "stdio" {
		return telemetry.TransportPipe
	}
	return telemetry.TransportTCP
}

// tellOutcome says what became of one round trip. A fault of the hop, which never reaches a client, goes by its own
// name; everything else by the words of the failure table.
func tellOutcome(ctx context.Context, o *telemetry.Operation, m wire.Message, err error) {
	var fault *hopError
	var limit *limitError
	switch {
	case errors.As(err, &fault):
		o.Outcome = fault.kind.String()
	case failure.As(err) != nil:
		o.Outcome = string(failure.As(err).Reason)
	case errors.As(context.Cause(ctx), &limit), errors.Is(context.Cause(ctx), errListTimeout), errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		o.Outcome = string(failure.Timeout)
	case ctx.Err() != nil, errors.Is(err, ErrNotTaken):
		o.Outcome = "cancelled"
	case err != nil:
		o.Outcome = string(failure.ConnectionLost)
	case m.Error != nil:
		o.Outcome = "protocol_error"
		o.Code, _, _ = wire.ErrorCode(m.Error)
		o.ErrorType = strconv.FormatInt(o.Code, 10)
		return
	case m.Result.Kind() != '{':
		o.Outcome = string(failure.BadUpstreamAnswer)
	case o.Method == "tools/call" && !m.Plain && wire.ToolError(m.Result):
		o.Outcome = "tool_error"
	default:
		o.Outcome = "ok"
		return
	}
	o.ErrorType = o.Outcome
}
