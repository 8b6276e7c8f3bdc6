package telemetry

import (
	"io"
	"log/slog"
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
func NewLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == Text || format != JSON && terminal(w) {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
