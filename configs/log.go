package configs

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// Values of Log.Subject: callers show by their subject, by a digest of it, or not at all.
const (
	SubjectPlain = "plain"
	SubjectHash  = "hash"
	SubjectNone  = "none"
)

// LogParts are the parts of Headgate that Log.Levels may name, sorted.
func LogParts() []string { return []string{"access", "authz", "gateway", "upstream"} }

// PartLevels returns the levels of the parts that have one of their own.
func (l Log) PartLevels() map[string]slog.Level {
	out := make(map[string]slog.Level, len(l.Levels))
	for part, text := range l.Levels {
		var level slog.Level
		if level.UnmarshalText([]byte(text)) == nil {
			out[part] = level
		}
	}
	return out
}

func (l *loader) logSettings(log *Log) {
	l.oneOf("log.format", log.Format, LogAuto, LogText, LogJSON)
	l.oneOf("log.subject", log.Subject, SubjectPlain, SubjectHash, SubjectNone)
	for _, part := range slices.Sorted(maps.Keys(log.Levels)) {
		path := join("log.levels", part)
		var level slog.Level
		switch {
		case !slices.Contains(LogParts(), part):
			l.problem(path, "is not a part of Headgate; expected one of %s", strings.Join(LogParts(), " "))
		case level.UnmarshalText([]byte(log.Levels[part])) != nil:
			l.problem(path, "found %s, expected debug, info, warn or error", l.show(path, log.Levels[part]))
		}
	}
}
