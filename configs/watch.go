package configs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a burst of file events may go on before it is looked at.
const settle = 200 * time.Millisecond

// Watch calls changed whenever the content of one of the files is not what it was, until ctx ends; then it
// returns nil. It watches the folders, so that a file may be replaced by renaming, removed and written anew, or
// swapped behind a symbolic link as Kubernetes does. A path that is no file but a glob stands for all files that it
// matches at the time, so that new ones are noticed. The first look is taken before Watch blocks: a change
// between loading a file and that look goes unseen. Changes of a burst, about 200ms, give one call; calls come
// from the calling goroutine, one after the other. The error says that watching is not possible.
func Watch(ctx context.Context, paths []string, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching configuration files: %w", err)
	}
	defer w.Close()

	look := func() (fingerprint, error) { return lookAt(w, paths) }
	if err := watch(ctx, w.Events, w.Errors, look, changed); err != nil {
		return fmt.Errorf("watching configuration files: %w", err)
	}
	return nil
}

type fingerprint [sha256.Size]byte

// watch is Watch without the file system. An error event counts as an event: it may stand for lost ones.
func watch(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error,
	look func() (fingerprint, error), changed func()) error {
	last, err := look()
	if err != nil {
		return err
	}
	var burst <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-events:
			if !ok {
				return fsnotify.ErrClosed
			}
		case _, ok := <-errs:
			if !ok {
				return fsnotify.ErrClosed
			}
		case <-burst:
			burst = nil
			now, err := look()
			if err != nil {
				return err
			}
			if now != last {
				last = now
				changed()
			}
			continue
		}
		if burst == nil {
			burst = time.After(settle)
		}
	}
}

// lookAt brings the watched folders up to date and then reads the files, in this order, so that no change falls
// between the two.
func lookAt(w *fsnotify.Watcher, paths []string) (fingerprint, error) {
	var folders []string
	paths, folders = resolve(paths)
	for _, path := range paths {
		folders = append(folders, existing(filepath.Dir(path)))
		if real, err := filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(real))
		}
	}
	for _, old := range w.WatchList() {
		if !slices.Contains(folders, old) {
			_ = w.Remove(old) // it fails if the folder is gone, which is as good
		}
	}
	for _, folder := range folders {
		if err := w.Add(folder); err != nil && existing(folder) == folder {
			return fingerprint{}, fmt.Errorf("folder %q: %w", folder, err)
		}
	}

	sum := sha256.New()
	for _, path := range paths {
		data, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%q %t %d ", path, err == nil, len(data))
		sum.Write(data)
	}
	return fingerprint(sum.Sum(nil)), nil
}

// resolve puts the files that globs match in the place of the globs, and gives the folders in which more may come.
func resolve(paths []string) (files, folders []string) {
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil || !hasMeta(path) {
			files = append(files, path)
			continue
		}
		matches, _ := matchFiles(path) // a glob that is malformed matches nothing
		files = append(files, matches...)
		folder := filepath.Dir(path)
		for ; hasMeta(folder) && filepath.Dir(folder) != folder; folder = filepath.Dir(folder) {
			found, _ := filepath.Glob(folder)
			folders = append(folders, slices.DeleteFunc(found, func(f string) bool { return existing(f) != filepath.Clean(f) })...)
		}
		folders = append(folders, existing(folder))
	}
	slices.Sort(files)
	return slices.Compact(files), folders
}

// existing is the folder, or the nearest one above it that exists.
func existing(folder string) string {
	folder = filepath.Clean(folder)
	for {
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			return folder
		}
		up := filepath.Dir(folder)
		if up == folder {
			return folder
		}
		folder = up
	}
}
