package upstream

import (
	"context"
	"errors"
	"net/http"

	"github.com/headgate/headgate/internal/wire"
)

// openStream opens a GET stream.
func (s *streamable) openStream(ctx context.Context, lastEventID string) (*http.Response, error) {
	h := s.headers("")
	h["Accept"] = []string{"text/event-stream"}
	if lastEventID != "" {
		h["Last-Event-Id"] = []string{lastEventID}
	}
	resp, err := s.do(ctx, http.MethodGet, s.url, nil, h, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK && mediaType(resp) == "text/event-stream" {
		return resp, nil
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusNotAcceptable:
		return nil, errNoStream
	case http.StatusNotFound, http.StatusBadRequest, http.StatusOK:
		// It may be the session that is not found, but servers without a stream say so too.
		return nil, errNoStream
	}
	return nil, s.statusFailure(resp)
}

// follow holds the stream on which the server speaks by itself: GET for a legacy server, a
// subscription for a modern one.
func (s *streamable) follow(ctx context.Context, opened func()) error {
	p := s.peer.Load()
	if p.era == Legacy {
		resp, err := s.openStream(ctx, "")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		opened()
		return s.readOwnEvents(resp)
	}
	r := &request{id: s.ids.Add(1), method: "subscriptions/listen", params: p.listenParams(), onNotify: func(m wire.Message) {
		if m.Method == "notifications/subscriptions/acknowledged" {
			opened()
		}
	}}
	m, err := s.exchange(ctx, r)
	if err == nil && m.Error != nil {
		return errNoStream
	}
	return err
}

func (s *streamable) readOwnEvents(resp *http.Response) error {
	events := wire.NewEventReader(resp.Body, int(s.maxAnswer))
	for {
		e, err := events.Next()
		if errors.Is(err, wire.ErrEventTooLarge) {
			continue
		}
		if err != nil {
			return err
		}
		if len(e.Data) == 0 {
			continue
		}
		m, err := wire.Parse(append([]byte(nil), e.Data...))
		switch {
		case err != nil:
			s.log.Debug("an event that is not a message is skipped", "reason", wire.Bare(err))
		case m.Kind == wire.KindRequest:
			s.ask(m, s.asking.addressee())
		case m.Kind == wire.KindNotification:
			s.asking.tell(m)
			s.events.handle(m)
		}
	}
}
