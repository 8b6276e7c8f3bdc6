package telemetry

import (
	"context"
	"log/slog"
	"maps"
	"sync/atomic"
)

// The parts of Headgate whose level of logging can be set by itself.
const (
	LogGateway  = "gateway"
	LogUpstream = "upstream"
	LogAuthz    = "authz"
	LogAccess   = "access" // the line for each request
)

// Levels says what is logged. The zero value logs from level info on.
type Levels struct{ now atomic.Pointer[levels] }

type levels struct {
	all  slog.Level
	some map[string]slog.Level
}

// Set puts levels in force: one for all parts, and others for some of them.
func (l *Levels) Set(all slog.Level, some map[string]slog.Level) {
	l.now.Store(&levels{all, maps.Clone(some)})
}

func (l *Levels) of(part string) slog.Level {
	now := l.now.Load()
	if now == nil {
		return slog.LevelInfo
	}
	if level, ok := now.some[part]; ok {
		return level
	}
	return now.all
}

// leveled lets through what the level of its part allows.
type leveled struct {
	slog.Handler
	levels *Levels
	part   string
}

// Enabled implements slog.Handler.
func (h leveled) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.levels.of(h.part)
}

// WithAttrs implements slog.Handler.
func (h leveled) WithAttrs(set []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(set)
	return h
}

// WithGroup implements slog.Handler.
func (h leveled) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// For is the logger of one part. A logger that NewLogger did not make is returned as it is.
func For(log *slog.Logger, part string) *slog.Logger {
	h, ok := log.Handler().(leveled)
	if !ok {
		return log
	}
	h.part = part
	return slog.New(h)
}
