package configs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watching starts Watch on real files and gives the channel on which changes arrive. It returns once the first
// look has been taken, which it makes sure of by changing a file until that shows.
func watching(t *testing.T, paths ...string) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	probe := filepath.Join(t.TempDir(), "probe")
	changes := make(chan struct{}, 64)
	done := make(chan error, 1)
	go func() {
		done <- Watch(ctx, append(paths, probe), func() { changes <- struct{}{} })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for i := byte(0); ; i++ {
		put(t, probe, string([]byte{'p', i}))
		select {
		case <-changes:
			// What the last probe did may be reported once more; wait it out, so that tests see their own change.
			quiet := time.NewTimer(2 * settle)
			for {
				select {
				case <-changes:
					quiet.Reset(2 * settle)
					continue
				case <-quiet.C:
				}
				return changes
			}
		case <-again.C:
		}
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestWatch(t *testing.T) {
	tests := []struct {
		name  string
		setup func(t *testing.T, dir string) // makes dir/c.yaml
		steps []func(t *testing.T, dir string)
	}{
		{
			name:  "written in place",
			setup: func(t *testing.T, dir string) { put(t, dir+"/c.yaml", "a") },
			steps: []func(t *testing.T, dir string){
				func(t *testing.T, dir string) { put(t, dir+"/c.yaml", "b") },
				func(t *testing.T, dir string) { put(t, dir+"/c.yaml", "c") },
			},
		},
		{
			name:  "renamed over, twice",
			setup: func(t *testing.T, dir string) { put(t, dir+"/c.yaml", "a") },
			steps: []func(t *testing.T, dir string){
				func(t *testing.T, dir string) { put(t, dir+"/c.tmp", "b"); rename(t, dir+"/c.tmp", dir+"/c.yaml") },
				func(t *testing.T, dir string) { put(t, dir+"/c.tmp", "c"); rename(t, dir+"/c.tmp", dir+"/c.yaml") },
			},
		},
		{
			name:  "removed and made anew",
			setup: func(t *testing.T, dir string) { put(t, dir+"/c.yaml", "a") },
			steps: []func(t *testing.T, dir string){
				func(t *testing.T, dir string) {
					if err := os.Remove(dir + "/c.yaml"); err != nil {
						t.Fatal(err)
					}
				},
				func(t *testing.T, dir string) { put(t, dir+"/c.yaml", "b") },
			},
		},
		{
			name: "link swapped as Kubernetes does",
			setup: func(t *testing.T, dir string) {
				for _, version := range []string{"1", "2"} {
					if err := os.Mkdir(dir+"/.."+version, 0o700); err != nil {
						t.Fatal(err)
					}
					put(t, dir+"/.."+version+"/c.yaml", version)
				}
				link(t, "..1", dir+"/..data")
				link(t, "..data/c.yaml", dir+"/c.yaml")
			},
			steps: []func(t *testing.T, dir string){
				func(t *testing.T, dir string) {
					link(t, "..2", dir+"/..data_tmp")
					rename(t, dir+"/..data_tmp", dir+"/..data")
				},
				func(t *testing.T, dir string) { put(t, dir+"/..2/c.yaml", "3") },
			},
		},
		{
			name: "link to a file elsewhere that is written in place",
			setup: func(t *testing.T, dir string) {
				real := filepath.Join(t.TempDir(), "real.yaml")
				put(t, real, "a")
				link(t, real, dir+"/c.yaml")
			},
			steps: []func(t *testing.T, dir string){
				func(t *testing.T, dir string) { put(t, dir+"/c.yaml", "b") },
			},
		},
		{
			name:  "folder that comes later",
			setup: func(*testing.T, string) {},
			steps: []func(t *testing.T, dir string){
				func(t *testing.T, dir string) { put(t, dir+"/c.yaml", "a") },
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tt.setup(t, dir)
			path := dir + "/c.yaml"
			changes := watching(t, path)
			for _, step := range tt.steps {
				step(t, dir)
				select {
				case <-changes:
				case <-t.Context().Done():
					t.Fatal("no change seen")
				}
			}
		})
	}
}

func TestWatchFolderThatIsMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc", "headgate")
	changes := watching(t, filepath.Join(dir, "c.yaml"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "c.yaml"), "a")
	<-changes
}

// TestWatchCoalesces runs the loop in virtual time, with what it sees and when under control.
func TestWatchCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		events, errs := make(chan fsnotify.Event), make(chan error)
		content := fingerprint{}
		var calls []time.Duration
		start := time.Now()
		done := make(chan error, 1)
		go func() {
			done <- watch(ctx, events, errs, func() (fingerprint, error) { return content, nil },
				func() { calls = append(calls, time.Since(start)) })
		}()
		synctest.Wait()

		content = fingerprint{1}
		for range 10 {
			events <- fsnotify.Event{}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(calls) != 1 || calls[0] != settle {
			t.Fatalf("a burst gives calls at %v, want one at %v", calls, settle)
		}

		events <- fsnotify.Event{} // another file of the folder
		time.Sleep(time.Second)
		synctest.Wait()
		if len(calls) != 1 {
			t.Fatalf("an event that changes nothing gives calls at %v", calls)
		}

		content = fingerprint{2}
		errs <- fsnotify.ErrEventOverflow
		time.Sleep(time.Second)
		synctest.Wait()
		if len(calls) != 2 {
			t.Fatalf("lost events give calls at %v", calls)
		}

		cancel()
		if err := <-done; err != nil {
			t.Errorf("the end of the context gives %v", err)
		}
	})
}

func TestWatchFails(t *testing.T) {
	broken := errors.New("no more watches")
	err := watch(t.Context(), nil, nil, func() (fingerprint, error) { return fingerprint{}, broken }, func() {})
	if !errors.Is(err, broken) {
		t.Errorf("error = %v, want %v", err, broken)
	}
	closed := make(chan fsnotify.Event)
	close(closed)
	err = watch(t.Context(), closed, nil, func() (fingerprint, error) { return fingerprint{}, nil }, func() {})
	if !errors.Is(err, fsnotify.ErrClosed) {
		t.Errorf("error = %v, want %v", err, fsnotify.ErrClosed)
	}
}
