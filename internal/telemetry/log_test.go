package telemetry

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestLevelsByPart(t *testing.T) {
	var out bytes.Buffer
	levels := new(Levels)
	log := NewLogger(&out, JSON, levels)
	up := For(log, LogUpstream).With("upstream", "a")
	say := func() string {
		out.Reset()
		log.Debug("own debug")
		log.Info("own info")
		up.Debug("up debug")
		up.Warn("up warn")
		For(log, LogAccess).Info("access info")
		var got []string
		for _, text := range []string{"own debug", "own info", "up debug", "up warn", "access info"} {
			if strings.Contains(out.String(), text) {
				got = append(got, text)
			}
		}
		return strings.Join(got, ", ")
	}
	if got := say(); got != "own info, up warn, access info" {
		t.Errorf("by default: %s", got)
	}
	levels.Set(slog.LevelWarn, map[string]slog.Level{LogUpstream: slog.LevelDebug})
	if got := say(); got != "up debug, up warn" {
		t.Errorf("with levels: %s", got)
	}
	levels.Set(slog.LevelDebug, map[string]slog.Level{LogUpstream: slog.LevelError, LogAccess: slog.LevelWarn})
	if got := say(); got != "own debug, own info" {
		t.Errorf("with others: %s", got)
	}
	if other := slog.New(slog.DiscardHandler); For(other, LogAccess) != other {
		t.Error("a logger of somebody else's is changed")
	}
}

// TestControlCharactersAreEscaped in both forms: one record is one line.
func TestControlCharactersAreEscaped(t *testing.T) {
	for _, format := range []string{Text, JSON, Auto} {
		var out bytes.Buffer
		log := NewLogger(&out, format, new(Levels))
		log.Info("call", "tool", "a\nlevel=ERROR msg=forged\r\x1b[31m\u2028\x00", "forged\nkey", "v")
		if got := out.String(); strings.Count(got, "\n") != 1 || strings.ContainsAny(got[:len(got)-1], "\r\x1b\x00") {
			t.Errorf("%s: %q", format, got)
		}
	}
}
