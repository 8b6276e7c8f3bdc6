package leak

import (
	"regexp"
	"strings"
)

var (
	// statements begin in capitals, as programs write them, or in small letters with what no sentence has.
	statements = regexp.MustCompile(strings.Join([]string{
		`\b(?:SELECT|WITH)\s[^\n]*?\s?\bFROM\s+["'` + "`" + `\[\w(]`,
		`\bSELECT\s[^\n]*?\n\s*FROM\s`,
		`\b(?:INSERT|REPLACE|MERGE)\s+INTO\s+\S`,
		`\bUPDATE\s+\S+\s+(?:AS\s+\w+\s+)?SET\s`,
		`\bDELETE\s+FROM\s+\S`,
		`\b(?:CREATE|ALTER|DROP|TRUNCATE)\s+(?:TEMP(?:ORARY)?\s+|UNIQUE\s+|OR\s+REPLACE\s+)?(?:TABLE|INDEX|VIEW|DATABASE|SCHEMA|SEQUENCE|FUNCTION|TRIGGER)\s+\S`,
		`\bselect\s+(?:\*|[\w.$"` + "`" + `]+(?:\s*,\s*[\w.$"` + "`" + `]+)+|(?:count|sum|max|min|avg|coalesce)\([^)\n]*\)|\w+\.\w+)(?:\s+as\s+\w+)?\s+from\s+[\w."` + "`" + `]+`,
		`\binsert\s+into\s+[\w."` + "`" + `]+\s*(?:\(|values\b|select\b)`,
		`\bupdate\s+[\w."` + "`" + `]+\s+set\s+[\w."` + "`" + `]+\s*=`,
		`\bdelete\s+from\s+[\w."` + "`" + `]+\s+where\s`,
		`\[SQL:\s`,
		`\[parameters:\s`,
	}, "|"))
	// more is how a line of a statement begins that goes on from the line before.
	more = regexp.MustCompile(`(?i)^\s*(?:from|where|and|or|set|values|order by|group by|having|limit|offset|(?:left |right |inner |outer |cross |full )*join|on|union|returning|\(|\)|,)(?:\W|$)`)
	// databaseErrors are what databases and their drivers say.
	databaseErrors = regexp.MustCompile(strings.Join([]string{
		`\bSQLSTATE\b[\[\s:(]?[^\n]*`,
		`\bORA-[0-9]{5}\b[^\n]*`,
		`(?i:you have an error in your sql syntax)[^\n]*`,
		`\(?\b(?:psycopg2?|asyncpg|sqlalchemy|pymysql|MySQLdb|sqlite3|pyodbc|cx_Oracle|oracledb)\.[\w.]+\)?[^\n]*`,
		`\b(?:java\.sql|org\.postgresql|com\.mysql|oracle\.jdbc|org\.hibernate|System\.Data\.SqlClient|Microsoft\.Data\.SqlClient|Npgsql)\.[\w.]+[^\n]*`,
		`\b(?:pq|pgx): [^\n]*`,
		`(?i:\b(?:relation|table|column|function|schema|database|role|type|constraint) "[^"\n]+"(?: of relation "[^"\n]+")? (?:does not exist|already exists))`,
		`(?i:\bduplicate key value violates unique constraint\b)[^\n]*`,
		`(?i:\bviolates (?:foreign key|not-null|check|unique) constraint\b)[^\n]*`,
		`(?i:\bduplicate entry '[^'\n]*' for key\b)[^\n]*`,
		`(?i:\b(?:DETAIL|HINT):\s+(?:key|failing row|perhaps you meant)\b)[^\n]*`,
		`(?i:\bno such (?:table|column): )\S+`,
		`(?i:\bunknown column '[^'\n]+' in\b)[^\n]*`,
		`(?i:\btable '[^'\n]+' doesn't exist)`,
		`(?i:\bnear "[^"\n]*": syntax error)`,
		`(?i:\bsyntax error at or near "[^"\n]*")`,
		`(?i:\b(?:invalid (?:object|column) name) '[^'\n]+')`,
		`(?i:\b(?:UNIQUE|FOREIGN KEY|NOT NULL|CHECK) constraint failed\b)[^\n]*`,
	}, "|"))
)

// No statement is without one of verbs, and no message of a database without one of errorWords.
var (
	verbs      = []string{"select", "with", "insert", "replace", "merge", "update", "delete", "create", "alter", "drop", "truncate", "[sql:", "[parameters:"}
	errorWords = []string{"sqlstate", "ora-", "sql syntax", "psycopg", "asyncpg", "sqlalchemy", "pymysql", "mysqldb", "sqlite3.", "pyodbc",
		"oracle", "java.sql", "postgresql", "com.mysql", "hibernate", "sqlclient", "npgsql", "pq: ", "pgx: ", "exist", "constraint", "duplicate entry",
		"detail:", "hint:", "no such ", "unknown column", "syntax error", "invalid object name", "invalid column name"}
)

// findSQL looks for statements, which go to the end of the line and to where the lines below go on with them, and
// for messages of databases.
func findSQL(text, lower string, add func(from, to int, kind Kind)) {
	at := 0
	if !hasAny(lower, verbs...) {
		at = len(text)
	}
	for at < len(text) {
		m := statements.FindStringIndex(text[at:])
		if m == nil {
			break
		}
		from, end := at+m[0], at+m[1]
		end += lineEnd(text[end:])
		for end < len(text) {
			next := text[end+1:]
			n := lineEnd(next)
			if !more.MatchString(next[:n]) {
				break
			}
			end += 1 + n
		}
		add(from, end, SQL)
		at = end
	}
	if !hasAny(lower, errorWords...) {
		return
	}
	for _, m := range databaseErrors.FindAllStringIndex(text, -1) {
		add(m[0], m[1], SQL)
	}
}

// lineEnd is the length of the rest of a line.
func lineEnd(s string) int {
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		return i
	}
	return len(s)
}
