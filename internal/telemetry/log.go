package telemetry

import (
	"io"
	"log/slog"
	"math"
	"os"
)

// Format of the log.
const (
	Auto = "auto" // text on a terminal, JSON otherwise
	Text = "text"
	JSON = "json"
)

// NewLogger writes a log to w. Both forms quote control characters, so that nothing a client or a
// server sends can forge a line.
func NewLogger(w io.Writer, format string, levels *Levels) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.Level(math.MinInt)} // Levels decide
	var h slog.Handler = slog.NewJSONHandler(w, o)
	if format == Text || format != JSON && terminal(w) {
		h = slog.NewTextHandler(w, o)
	}
	if late, ok := w.(*LateWriter); ok {
		h = prompt{h, late}
	}
	return slog.New(leveled{h, levels, ""})
}

func terminal(w io.Writer) bool {
	if late, ok := w.(*LateWriter); ok {
		w = late.out
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
