package gateway

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
)

// TestAuditPatience: a disk that takes nothing keeps a call from being sent, and does not keep its caller for ever.
func TestAuditPatience(t *testing.T) {
	for _, required := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			logs := new(logBuffer)
			g := new(Gateway)
			// Nothing is started, so nothing is written.
			g.auditor.Store(newAuditor(configs.Audit{File: filepath.Join(t.TempDir(), "audit"), Required: required}, slog.New(slog.NewTextHandler(logs, nil))))
			x := &exchange{guest: guest{caller: authz.Anonymous(), s: &snapshot{}, v: &view{scope: &scope{}}}, method: "tools/call"}
			g.beginAudit(x, "x_echo")
			began := time.Now()
			a, ok := x.audit.sending(t.Context(), x)
			if ok == required || required && (time.Since(began) != auditPatience || a.failed == nil) || !required && time.Since(began) != 0 {
				t.Errorf("required %t: sent %t after %s, answer %+v", required, ok, time.Since(began), a)
			}
			if strings.Contains(logs.String(), "calls are refused") != required {
				t.Errorf("required %t: logged %q", required, logs.String())
			}
			began = time.Now()
			x.audit.end(x, verdictOf(a))
			if time.Since(began) != 0 {
				t.Errorf("required %t: the answer waited %s", required, time.Since(began))
			}
		})
	}
}

// TestAuditIncidents: one line of the log a minute, and every failure belongs to the last.
func TestAuditIncidents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := new(logBuffer)
		a := newAuditor(configs.Audit{File: "audit"}, slog.New(slog.NewTextHandler(logs, nil)))
		first := a.failed(errors.New("full"))
		time.Sleep(auditTold - time.Second)
		if again := a.failed(errors.New("full")); again != first {
			t.Errorf("incidents %s and %s within a minute", first, again)
		}
		time.Sleep(time.Second)
		second := a.failed(errors.New("full"))
		if second == first || strings.Count(logs.String(), "\n") != 2 || !strings.Contains(logs.String(), "incident="+first) || !strings.Contains(logs.String(), "incident="+second+" records=3") {
			t.Errorf("incidents %s and %s, logged %s", first, second, logs.String())
		}
	})
}
