package configs

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// configExtensions are those that a configuration or a team's file can have.
var configExtensions = []string{".yaml", ".yml", ".json", ".toml"}

// include reads the team files that the globs name.
func (l *loader) include(globs []string) {
	folder := filepath.Dir(l.name)
	seen := map[string]bool{filepath.Clean(l.name): true}
	for i, glob := range globs {
		at := index("include", i)
		if glob == "" {
			l.problem(at, "must not be empty")
			continue
		}
		pattern := filepath.FromSlash(glob)
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(quoteGlob(folder), pattern)
		}
		files, err := matchFiles(pattern)
		if err != nil {
			l.problem(at, "found %s, expected a glob such as teams/*.yaml", l.show(at, glob))
			continue
		}
		l.files[pattern] = true
		if len(files) == 0 {
			l.warn(at, "%s matches no file", l.show(at, glob))
		}
		for _, file := range files {
			if clean := filepath.Clean(file); !seen[clean] {
				seen[clean] = true
				l.teamFile(file, shownFile(folder, file, filepath.IsAbs(filepath.FromSlash(glob))))
			}
		}
	}
}

func shownFile(folder, file string, absolute bool) string {
	if rel, err := filepath.Rel(folder, file); err == nil && !absolute {
		file = rel
	}
	file = filepath.ToSlash(file)
	if strings.ContainsFunc(file, func(c rune) bool { return !strconv.IsPrint(c) }) {
		return strconv.Quote(file) // a problem is one line
	}
	return file
}

// teamFile reads one team's file. What is wrong with it is that team's problem.
func (l *loader) teamFile(file, shown string) {
	l.files[file] = true
	ext := filepath.Ext(file)
	if !slices.Contains(configExtensions, strings.ToLower(ext)) {
		l.warnings = append(l.warnings, shown+": not read as a team's file, since its name does not end in .yaml, .yml, .json or .toml")
		return
	}
	name := strings.TrimSuffix(filepath.Base(file), ext)
	path := join("teams", name)
	if other := l.teams[name]; other != nil {
		where := other.path
		if other.File != "" {
			where = other.File
		}
		l.faults = append(l.faults, fault{team: name, Problem: Problem{Path: shown, Text: "the team " + name + " is defined already, by " + where}})
		return
	}
	l.teamFiles[path] = name
	l.shownAs[path] = shown + ": "
	data, err := readRegular(file, maxConfigFile)
	if err != nil {
		l.teams[name] = &teamSource{Team: &Team{Name: name, File: shown}, path: path}
		l.problem(path, "cannot be read: %s", err)
		return
	}
	m, err := parseFormat(ext, data)
	if err != nil {
		l.teams[name] = &teamSource{Team: &Team{Name: name, File: shown}, path: path}
		l.problem(path, "%s", err)
		return
	}
	host := l.host
	l.host = false // a team's file is ours, whatever the configuration's is
	l.decodeTeam(name, m).File = shown
	l.host = host
}

// place is a path in the words of the file at hand, and the team whose own file that is, or "".
func (l *loader) place(path string) (shown, team string) {
	for p := path; p != ""; {
		if as, ok := l.shownAs[p]; ok {
			rest := path[len(p):]
			if file, ok := strings.CutSuffix(as, ": "); ok {
				if rest == "" {
					return file, l.teamFiles[p]
				}
				return as + strings.TrimPrefix(rest, "."), l.teamFiles[p]
			}
			return as + rest, ""
		}
		i := strings.LastIndexByte(p, '.')
		if i < 0 {
			break
		}
		p = p[:i]
	}
	return path, ""
}

// assembleTeams gives the configuration its teams; those of broken files are as they were before.
func (l *loader) assembleTeams(cfg *Config, broken map[string]bool) {
	if !l.teamsGiven && len(cfg.Include) == 0 {
		return
	}
	cfg.Teams = make(map[string]*Team, len(l.teams))
	for name, t := range l.teams {
		if t.File == "" || !broken[name] {
			cfg.Teams[name] = t.Team
		} else if before := l.options.Previous.Teams[name]; before != nil {
			cfg.Teams[name] = before
		}
	}
	if len(cfg.Teams) == 0 {
		l.warn("teams", "there is no team, so nothing is allowed to anybody")
	}
}

// checkRules asks the caller's check about all teams, and reports in this load's words.
func (l *loader) checkRules() {
	if l.options.CheckRules == nil || len(l.teams) == 0 {
		return
	}
	teams := make(map[string]*Team, len(l.teams))
	for name, t := range l.teams {
		teams[name] = t.Team
	}
	for _, p := range l.options.CheckRules(teams) {
		text := p.Text
		if l.hidden[p.Path] {
			text = "is not valid; the reason is not shown, since it may repeat the value"
		}
		l.problem(p.Path, "%s", text)
	}
}

// matchFiles gives the files that a glob matches, sorted. Folders, and hidden files that the glob does not ask for,
// such as those that editors make, are not among them.
func matchFiles(glob string) ([]string, error) {
	matches, err := filepath.Glob(glob)
	if err != nil {
		return nil, err
	}
	hidden := strings.HasPrefix(filepath.Base(glob), ".")
	matches = slices.DeleteFunc(matches, func(file string) bool {
		info, err := os.Stat(file)
		return err == nil && info.IsDir() || !hidden && strings.HasPrefix(filepath.Base(file), ".")
	})
	slices.Sort(matches)
	return matches, nil
}

var globQuoter = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// quoteGlob makes a glob that matches a path itself. Where the backslash separates folders nothing can be quoted.
func quoteGlob(path string) string {
	if filepath.Separator == '\\' {
		return path
	}
	return globQuoter.Replace(path)
}

// hasMeta reports that a path can be a glob.
func hasMeta(path string) bool {
	magic := `*?[\`
	if filepath.Separator == '\\' {
		magic = `*?[`
	}
	return strings.ContainsAny(path, magic)
}
