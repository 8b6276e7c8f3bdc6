package integration

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/gateway"
)

// runGate runs a gateway behind front, which has not been started, until the end of the test.
func runGate(t *testing.T, front *httptest.Server, config string) *gateway.Gateway {
	t.Helper()
	cfg, err := configs.Parse("test.json", []byte(config), configs.Options{CheckRules: authz.CheckRules})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(cfg, gateway.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	front.Config.Handler = g.Handler()
	front.Start()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Run(ctx)
	}()
	t.Cleanup(func() {
		g.Drain()
		front.CloseClientConnections()
		front.Close()
		cancel()
		<-done
	})
	return g
}

// awaitKeys waits until the gateway has fetched the keys that a token is signed with.
func awaitKeys(t *testing.T, g *gateway.Gateway, token string) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for {
		_, err := g.Identify(token)
		if !errors.Is(err, authz.ErrCannotVerify) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}
