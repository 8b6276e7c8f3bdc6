package main

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/headgate/headgate/internal/telemetry"
)

// flushLimit is how long the last spans and metrics may take to be exported at the end.
const flushLimit = 5 * time.Second

// openTelemetry sets up traces and metrics as the standard variables ask for them.
func (e *env) openTelemetry(log *slog.Logger) error {
	began := time.Now()
	e.telErrors = telemetry.NewErrors(log)
	// The libraries know one handler of errors for the process, and write to stderr in a form of their own without.
	otel.SetErrorHandler(e.telErrors)
	t, err := telemetry.Open(context.Background(), telemetry.Options{Version: version(), Errors: e.telErrors, Console: e.stderr})
	if err != nil {
		return err
	}
	t.Reloaded(true, time.Since(began))
	e.tel = t
	return nil
}

// closeTelemetry exports what is left, within a bound.
func (e *env) closeTelemetry() {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	if err := e.tel.Shutdown(ctx); err != nil {
		e.telErrors.Handle(err)
	}
}
