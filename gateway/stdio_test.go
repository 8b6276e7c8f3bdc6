package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
)

// finish waits for ServeStdio to return.
func (c *pipeClient) finish() error {
	c.t.Helper()
	select {
	case err := <-c.done:
		return err
	case <-time.After(limit):
		c.t.Fatal("ServeStdio does not return")
	}
	return nil
}

// TestStdioPipelined: a client that writes everything at once and closes its end gets every answer.
func TestStdioPipelined(t *testing.T) {
	g, _ := echoGate(t)
	in := strings.Join([]string{
		initializeBody,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		``,
		legacyBody("1", "tools/list", "") + "\r",
		legacyBody("2", "tools/call", `{"name":"x_echo","arguments":{"a":1}}`),
		modernBody("3", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`),
		`{"jsonrpc":"2.0","id":9,"result":{}}`,
		legacyBody("4", "ping", ""), // without an end of line
	}, "\n")
	var out bytes.Buffer
	if err := g.ServeStdio(t.Context(), authz.Anonymous(), strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(out.String()) {
		got[at(t, line, "id")] = strings.TrimSpace(line)
	}
	for id, want := range map[string]string{`"init"`: `"protocolVersion":"2025-11-25"`, "1": `"tools":[{"name":"x_add"`, "2": `"structuredContent":{"a":1}`, "4": `"result":{}`} {
		if !strings.Contains(got[id], want) {
			t.Errorf("answer %s: %q", id, got[id])
		}
	}
	if first, _, _ := strings.Cut(out.String(), "\n"); at(t, first, "id") != `"init"` {
		t.Errorf("the first line is %s", first)
	}
	if got["3"] != "" {
		t.Errorf("a subscription that ended with its client was answered: %s", got["3"])
	}
}

func TestStdioEnds(t *testing.T) {
	w := newWatched()
	s := &mcptest.Server{Tools: []mcptest.Tool{w.tool()}}
	h := s.StartHTTP(t)
	call := modernBody("1", "tools/call", `"name":"x_watched","arguments":{"n":1}`)
	t.Run("input ends, the call finishes", func(t *testing.T) {
		g := launch(t, parseConfig(t, map[string]string{"x": entry(h)}), Options{})
		p := g.pipe()
		p.send(call)
		expect(t, "the call", w.started)
		p.in.Close()
		w.release <- struct{}{}
		if got := p.next(); at(t, got, "result", "structuredContent", "n") != "1" {
			t.Errorf("%s", got)
		}
		if err := p.finish(); err != nil {
			t.Error(err)
		}
	})
	t.Run("input ends, the call takes longer than the drain time", func(t *testing.T) {
		g := launch(t, parseConfig(t, map[string]string{"x": entry(h)}, `"drain":"50ms"`), Options{})
		p := g.pipe()
		p.send(call)
		expect(t, "the call", w.started)
		p.in.Close()
		expect(t, "the cancellation", w.cancelled)
		if err := p.finish(); err != nil {
			t.Error(err)
		}
	})
	t.Run("context ends, calls and subscriptions finish", func(t *testing.T) {
		g := launch(t, parseConfig(t, map[string]string{"x": entry(h)}), Options{})
		ctx, cancel := context.WithCancel(t.Context())
		p := openPipe(t, g.Gateway, ctx)
		p.send(modernBody("2", "subscriptions/listen", `"notifications":{}`))
		if got := p.next(); at(t, got, "method") != `"notifications/subscriptions/acknowledged"` {
			t.Errorf("%s", got)
		}
		p.send(call)
		expect(t, "the call", w.started)
		cancel()
		if got := p.next(); at(t, got, "id") != "2" || at(t, got, "result", "resultType") != `"complete"` {
			t.Errorf("the end of the subscription: %s", got)
		}
		if ok, why := g.Ready(); ok || why != "draining" {
			t.Errorf("ready: %t %s", ok, why)
		}
		w.release <- struct{}{}
		if got := p.next(); at(t, got, "result", "structuredContent", "n") != "1" {
			t.Errorf("%s", got)
		}
		if err := p.finish(); err != nil {
			t.Error(err)
		}
	})
	t.Run("input breaks", func(t *testing.T) {
		g := launch(t, parseConfig(t, map[string]string{"x": entry(h)}), Options{})
		p := g.pipe()
		broken := errors.New("broken")
		p.in.CloseWithError(broken)
		if err := p.finish(); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	})
}

// TestStdioWithoutReader: a host that takes nothing does not keep the process alive.
func TestStdioWithoutReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := makeGateway(t, configs.Default(), Options{})
		in, host := io.Pipe()
		deaf, out := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- g.ServeStdio(t.Context(), authz.Anonymous(), in, out) }()
		fmt.Fprintln(host, initializeBody)
		host.Close()
		if err := <-done; !errors.Is(err, errNoReader) {
			t.Errorf("%v", err)
		}
		deaf.Close()
		synctest.Wait()
	})
}

// TestStdioWithoutReaderOrEnd: the end of its input would not be seen behind what waits for a host that
// takes nothing, so such a host is taken for gone.
func TestStdioWithoutReaderOrEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := makeGateway(t, configs.Default(), Options{})
		in, host := io.Pipe()
		deaf, out := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- g.ServeStdio(t.Context(), authz.Anonymous(), in, out) }()
		stuck := make(chan struct{})
		go func() {
			defer close(stuck)
			for i := 0; ; i++ {
				if _, err := fmt.Fprintln(host, modernBody(fmt.Sprint(i), "tools/list", "")); err != nil {
					return
				}
			}
		}()
		if err := <-done; !errors.Is(err, errNoReader) {
			t.Errorf("%v", err)
		}
		in.Close()
		deaf.Close()
		<-stuck
		synctest.Wait()
	})
}

// TestStdioManyCalls: more calls than may run at a time are all answered, each once, and the places of
// subscriptions are not among them.
func TestStdioManyCalls(t *testing.T) {
	w := newWatched()
	s := &mcptest.Server{Tools: []mcptest.Tool{w.tool()}}
	w.started = make(chan string, 2*maxConcurrent)
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	p := g.pipe()
	const listens, calls = 10, maxConcurrent + 20
	go func() {
		for i := range listens {
			p.send(modernBody(fmt.Sprintf(`"s%d"`, i), "subscriptions/listen", `"notifications":{}`))
		}
		for i := range calls {
			p.send(modernBody(fmt.Sprint(i), "tools/call", fmt.Sprintf(`"name":"x_watched","arguments":{"n":%d}`, i)))
		}
	}()
	for range maxConcurrent {
		expect(t, "a call", w.started)
	}
	close(w.release)
	answered := map[string]bool{}
	for len(answered) < calls {
		line := p.next()
		id := at(t, line, "id")
		if id == "" {
			continue // an acknowledgement
		}
		if answered[id] || at(t, line, "result", "structuredContent", "n") != id {
			t.Fatalf("answer %s", line)
		}
		answered[id] = true
	}
}
