package gateway

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/audit"
)

const (
	// auditFlush is how long the end waits for calls to be recorded, and then for the file.
	auditFlush = 5 * time.Second
	// auditPatience is how long a call waits for each of its records, where records are required.
	auditPatience = 5 * time.Second
	// auditTold is how often records that cannot be written are logged.
	auditTold = time.Minute
)

// auditor is the audit log of one configuration. Calls hold on to the one they began with, so that both
// records of a call are in one file; it ends when the last of them has. A nil auditor records nothing.
type auditor struct {
	cfg    configs.Audit
	log    *slog.Logger
	file   *audit.Log
	cancel context.CancelFunc // of run; both are set by start
	done   chan struct{}

	recorded atomic.Int64
	lost     atomic.Int64

	mu       sync.Mutex // guards the fields below
	calls    int        // that hold on to it
	retired  bool
	idle     chan struct{} // closed once it is retired and no call holds on to it
	told     time.Time     // when a failure was logged last
	incident string        // and under which id
}

// newAuditor makes the audit log of a configuration, nil for none. It does no I/O.
func newAuditor(cfg configs.Audit, log *slog.Logger) *auditor {
	if cfg.File == "" {
		return nil
	}
	a := &auditor{cfg: cfg, log: log, idle: make(chan struct{}), done: make(chan struct{})}
	a.file = audit.New(audit.Options{File: cfg.File, MaxSize: cfg.MaxSize, Keep: cfg.Keep, Lost: func(err error) { a.failed(err) }})
	return a
}

// OpenAudit opens the file of the audit log, if there is one, to see before anything is served whether that
// can be done. It is for the time before Run; without it the first call's record opens the file.
func (g *Gateway) OpenAudit() error {
	a := g.auditor.Load()
	if a == nil {
		return nil
	}
	if err := a.file.Open(); err != nil {
		return fmt.Errorf("audit.file: %w", err)
	}
	return nil
}

// start begins to write; g.mu is held.
func (a *auditor) start() {
	if a == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	go func() {
		defer close(a.done)
		a.file.Run(ctx)
	}()
}

// stop ends a started auditor: it waits a while for the records of calls, and for what is to be written. A
// file whose disk hangs does not keep the process.
func (a *auditor) stop() {
	if a == nil || a.cancel == nil {
		return
	}
	a.retire()
	wait(a.idle)
	a.cancel()
	wait(a.done)
}

func wait(c <-chan struct{}) {
	t := time.NewTimer(auditFlush)
	defer t.Stop()
	select {
	case <-c:
	case <-t.C:
	}
}

// acquire holds on to the auditor; false once it is retired.
func (a *auditor) acquire() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.retired {
		return false
	}
	a.calls++
	return true
}

func (a *auditor) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calls--; a.calls == 0 && a.retired {
		close(a.idle)
	}
}

func (a *auditor) retire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.retired {
		return
	}
	if a.retired = true; a.calls == 0 {
		close(a.idle)
	}
}

// write writes one record. Where records are required it returns when the operating system has it.
func (a *auditor) write(ctx context.Context, record []byte) error {
	var err error
	if a.cfg.Required {
		err = a.file.Write(ctx, record)
	} else {
		err = a.file.Offer(record)
	}
	if err == nil {
		a.recorded.Add(1)
	}
	return err
}

// failed counts a record that could not be written. It is logged once a minute, and every failure until the
// next line belongs to the incident of the last.
func (a *auditor) failed(err error) (incident string) {
	lost := a.lost.Add(1)
	a.mu.Lock()
	now := time.Now()
	tell := a.incident == "" || now.Sub(a.told) >= auditTold
	if tell {
		a.told, a.incident = now, rand.Text()[:12]
	}
	incident = a.incident
	a.mu.Unlock()
	if tell {
		text := "calls are not recorded in the audit log"
		if a.cfg.Required {
			text = "calls are refused or half recorded, since the audit log cannot be written"
		}
		a.log.Error(text, "incident", incident, "records", lost, "error", err.Error())
	}
	return incident
}

// auditChange is the step from one audit log to the next. A nil one is no change.
type auditChange struct {
	g    *Gateway
	next *auditor
}

// nextAuditor opens the audit log of a new configuration. The step is to be committed or discarded.
func (g *Gateway) nextAuditor(cfg configs.Audit) (*auditChange, error) {
	if a := g.auditor.Load(); a == nil && cfg.File == "" || a != nil && a.cfg == cfg {
		return nil, nil
	}
	next := newAuditor(cfg, g.log)
	if next != nil {
		if err := next.file.Open(); err != nil {
			return nil, fmt.Errorf("audit.file: %w", err)
		}
	}
	return &auditChange{g, next}, nil
}

func (c *auditChange) discard() {
	if c != nil && c.next != nil {
		_ = c.next.file.Close()
	}
}

// commit puts the new one in place; the old one ends with its last call. g.mu is held.
func (c *auditChange) commit() {
	if c == nil {
		return
	}
	old := c.g.auditor.Load()
	if c.g.start == nil {
		c.discard() // Run has not begun, or has ended: the first record opens the file again
		c.g.auditor.Store(c.next)
		return
	}
	c.next.start()
	c.g.auditor.Store(c.next)
	if old == nil {
		return
	}
	old.retire()
	ending := c.g.ending
	c.g.retired.Go(func() {
		select {
		case <-old.idle:
		case <-ending:
		}
		old.stop()
	})
}

// AuditStatus is what /status shows of the audit log.
type AuditStatus struct {
	File     string `json:"file"`
	Required bool   `json:"required"`
	Recorded int64  `json:"recorded"` // records that were written or are about to be
	Lost     int64  `json:"lost"`     // records that could not be written
}

func (a *auditor) status() *AuditStatus {
	if a == nil {
		return nil
	}
	return &AuditStatus{File: a.cfg.File, Required: a.cfg.Required, Recorded: a.recorded.Load(), Lost: a.lost.Load()}
}
