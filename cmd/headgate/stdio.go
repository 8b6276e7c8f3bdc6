package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newStdio(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "stdio",
		Short: "Serve MCP over stdin and stdout, for a desktop host",
		Long: `Serves the same endpoint as serve over stdin and stdout, for a host that starts its
servers itself. Logs go to stderr. It ends when stdin does.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, g, log, err := e.open()
			if err != nil {
				return err
			}
			return running(context.WithoutCancel(c.Context()), g, func(run context.Context) error {
				go e.reload(run, cfg, g, log)
				return g.ServeStdio(c.Context(), e.stdin, e.stdout)
			})
		},
	}
	e.configFlag(c)
	return c
}
