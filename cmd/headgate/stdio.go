package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/gateway"
)

// identifyLimit is how long the issuers' keys may take to arrive.
const identifyLimit = 15 * time.Second

// identify finds out whom the host acts for.
func (e *env) identify(ctx context.Context, g *gateway.Gateway) (authz.Caller, error) {
	ctx, cancel := context.WithTimeout(ctx, identifyLimit)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		caller, err := g.Identify(e.credential())
		switch {
		case err == nil:
			return caller, nil
		case errors.Is(err, authz.ErrNoCredentials):
			return authz.Caller{}, fmt.Errorf("the configuration has auth: put an API key or a token into the environment variable %s", credentialVariable)
		case !errors.Is(err, authz.ErrCannotVerify):
			return authz.Caller{}, fmt.Errorf("%s: %w", credentialVariable, err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return authz.Caller{}, fmt.Errorf("%s: %w", credentialVariable, err)
		}
	}
}

func newStdio(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "stdio",
		Short: "Serve MCP over stdin and stdout, for a desktop host",
		Long: `Serves the same endpoint as serve over stdin and stdout, for a host that starts its
servers itself. Logs go to stderr. It ends when stdin does.

Where the configuration has auth, the host shows who it is with an API key or a token in
the environment variable HEADGATE_API_KEY.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			e.serves, e.oneClient = true, true
			defer e.closeTelemetry()
			cfg, g, log, err := e.open()
			if err != nil {
				return err
			}
			if err := g.OpenAudit(); err != nil {
				return err
			}
			return running(context.WithoutCancel(c.Context()), g, func(run context.Context) error {
				caller, err := e.identify(run, g)
				if err != nil {
					return err
				}
				go e.reload(run, cfg, g, log)
				return g.ServeStdio(c.Context(), caller, e.stdin, e.stdout)
			})
		},
	}
	e.configFlag(c)
	return c
}
