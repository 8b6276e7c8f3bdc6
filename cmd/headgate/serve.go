package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/telemetry"
)

func newServe(e *env) *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve MCP over HTTP",
		Long: `Serves MCP over Streamable HTTP at /mcp, for clients of every protocol version at once,
and health, readiness, status and metrics on the admin address.

SIGHUP and a change of the configuration file reload the configuration; one with errors
is reported and the old one stays. SIGTERM drains and exits; a second one exits at once.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("listen") {
				e.override = map[string]any{"listen": listen}
			}
			return e.serve(c.Context())
		},
	}
	e.configFlag(c)
	c.Flags().StringVarP(&listen, "listen", "l", "", "listen on `ADDR` instead of the configured address")
	return c
}

func (e *env) serve(ctx context.Context) error {
	e.limitMemory()
	late := telemetry.NewLateWriter(e.stderr)
	defer late.Close()
	e.stderr = late
	e.serves = true
	defer e.closeTelemetry()
	cfg, g, log, err := e.open()
	if err != nil {
		return err
	}
	if err := g.OpenAudit(); err != nil {
		return err
	}
	front, err := listenOn("listen", cfg.Listen)
	if err != nil {
		return err
	}
	servers := []*server{newServer(gateway.LimitListener(front, cfg.Overload.Connections), g.Handler(), log)}
	addresses := []any{"listen", "http://" + front.Addr().String() + "/mcp"}
	if cfg.AdminListen != "" {
		admin, err := listenOn("admin_listen", cfg.AdminListen)
		if err != nil {
			front.Close()
			return err
		}
		servers = append(servers, newServer(admin, g.Admin(), log))
		addresses = append(addresses, "admin", "http://"+admin.Addr().String())
	}
	debug, err := e.debugServer(log)
	if err != nil {
		for _, s := range servers {
			s.listener.Close()
		}
		return err
	}
	if debug != nil {
		servers = append(servers, debug)
	}
	// The gateway outlives the signal: calls in flight are finished before upstreams are stopped.
	return running(context.WithoutCancel(ctx), g, func(run context.Context) error {
		go e.reload(run, cfg, g, log)
		var beside sync.WaitGroup
		defer beside.Wait()
		pace, stop := context.WithCancel(run)
		defer stop()
		beside.Go(func() { e.paceCollections(pace) })
		failed := make(chan error, len(servers))
		for _, s := range servers {
			go func() { failed <- s.serve() }()
		}
		log.Info("ready", append(addresses, "upstreams", len(cfg.Upstreams))...)
		var err error
		select {
		case <-ctx.Done():
			log.Info("draining", "limit", cfg.Drain.String())
		case err = <-failed:
		}
		g.Drain()
		// The front first: the admin address answers "draining" while it does.
		for _, s := range servers {
			s.shutdown(cfg.Drain)
		}
		log.Info("stopped")
		return err
	})
}

func listenOn(key, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; set another address for %s", key, err, key)
	}
	return l, nil
}

// server is one HTTP server on its listener.
type server struct {
	http     *http.Server
	listener net.Listener
}

func newServer(l net.Listener, h http.Handler, log *slog.Logger) *server {
	return &server{listener: l, http: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// No ReadTimeout and no WriteTimeout: they would cut streams and long calls. The handler
		// bounds the reading of a body and each write of a stream by itself.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

func (s *server) serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// shutdown stops accepting and waits for the requests in flight, at most for the drain time.
func (s *server) shutdown(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
}

// reload applies a new configuration on SIGHUP and on changes of the files, until ctx ends.
func (e *env) reload(ctx context.Context, cfg *configs.Config, g *gateway.Gateway, log *slog.Logger) {
	if e.config == "" {
		return
	}
	again := make(chan string, 1)
	ask := func(why string) {
		select {
		case again <- why:
		default:
		}
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	watching := e.watch(ctx, cfg.Files(), ask, log)
	defer func() { watching() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			ask("SIGHUP")
		case why := <-again:
			e.previous = cfg
			began := time.Now()
			next, _, err := e.load()
			if err == nil {
				err = g.Apply(next)
			}
			e.tel.Reloaded(err == nil, time.Since(began))
			if err != nil {
				log.Error("reload failed, the old configuration stays in force", "cause", why, "error", err.Error())
				continue
			}
			if next.Listen != cfg.Listen || next.AdminListen != cfg.AdminListen || next.Log.Format != cfg.Log.Format ||
				next.Overload.Connections != cfg.Overload.Connections || next.Overload.Bodies != cfg.Overload.Bodies {
				log.Warn("listen, admin_listen, log.format, overload.connections and overload.bodies change only with a restart")
			}
			for _, w := range next.Warnings {
				log.Warn("configuration: " + w)
			}
			for _, p := range next.TeamErrors {
				log.Error("a team's file has an error; the team stays as it was", "error", p.String())
			}
			e.levels.Set(next.Log.Level, next.Log.PartLevels())
			if !slices.Equal(next.Files(), cfg.Files()) {
				watching()
				watching = e.watch(ctx, next.Files(), ask, log)
			}
			cfg = next
			log.Info("configuration reloaded", "cause", why, "upstreams", len(next.Upstreams))
		}
	}
}

// watch asks for a reload when one of the files changes, until the returned function is called.
func (e *env) watch(ctx context.Context, files []string, ask func(why string), log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := configs.Watch(ctx, files, func() { ask("file changed") }); err != nil && ctx.Err() == nil {
			log.Warn("the configuration file is not watched; send SIGHUP to reload it", "error", err.Error())
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
