package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// endTime is how long a process may take to stop after being asked to.
const endTime = time.Minute

// output gathers what a process prints.
type output struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.String()
}

// process is a running backbone, in a separate process group.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *output
	ended          chan struct{}
	dataDir        string // of `backbone dev`, else ""
}

var (
	processesMutex sync.Mutex
	processes      []*process
)

// launch starts the binary; it ends with the run at the latest.
func launch(path, dataDir string, env []string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), stdout: &output{}, stderr: &output{}, ended: make(chan struct{}), dataDir: dataDir}
	p.cmd.Env = append(cleanEnvironment(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	processesMutex.Lock()
	processes = append(processes, p)
	processesMutex.Unlock()
	go func() {
		_ = p.cmd.Wait() // ProcessState has the exit code
		close(p.ended)
	}()
	return p, nil
}

// cleanEnvironment is the environment without the caller's settings of backbone.
func cleanEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "BACKBONE_") })
}

// signal reaches backbone alone, as kill does.
func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// interrupt sends the signal of Ctrl-C, waits for the end and returns the exit code.
func (p *process) interrupt() (int, error) {
	if err := p.signal(syscall.SIGINT); err != nil {
		return 0, err
	}
	return p.wait(endTime)
}

func (p *process) wait(limit time.Duration) (int, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-timer.C:
		return 0, fmt.Errorf("backbone has not ended after %s; it printed:\n%s\n%s", limit, p.stdout, p.stderr)
	}
}

// alive reports whether the process still runs.
func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// awaitOutput waits for a line and returns its groups.
func (p *process) awaitOutput(from *output, pattern *regexp.Regexp, limit time.Duration) ([]string, error) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if found := pattern.FindStringSubmatch(from.String()); found != nil {
			return found, nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			if found := pattern.FindStringSubmatch(from.String()); found != nil {
				return found, nil
			}
			return nil, fmt.Errorf("backbone ended (%s) before it printed %s:\n%s\n%s", p.cmd.ProcessState, pattern, p.stdout, p.stderr)
		case <-deadline.C:
			return nil, fmt.Errorf("backbone has not printed %s after %s:\n%s\n%s", pattern, limit, p.stdout, p.stderr)
		}
	}
}

// end stops the process, with SIGKILL if necessary, and the PostgreSQL of `backbone dev`.
func (p *process) end() error {
	var failure error
	if p.alive() {
		if _, failure = p.interrupt(); failure != nil {
			_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // the whole group
			<-p.ended
		}
	}
	if strings.Contains(p.stderr.String(), "DATA RACE") {
		failure = errors.Join(failure, errors.New(p.stderr.String()))
	}
	if p.dataDir != "" {
		if pid, err := postmaster(p.dataDir); err == nil {
			_ = syscall.Kill(pid, syscall.SIGQUIT) // it outlived a backbone that was killed
		}
	}
	return failure
}

func endAll() error {
	processesMutex.Lock()
	defer processesMutex.Unlock()
	var failures []error
	for _, p := range processes {
		failures = append(failures, p.end())
	}
	return errors.Join(failures...)
}

// result is a command that has ended.
type result struct {
	code           int
	stdout, stderr string
}

// command runs the binary to its end.
func command(t *testing.T, env []string, args ...string) result {
	t.Helper()
	path := program(t) // the first time it is built, which takes as long as it takes
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(cleanEnvironment(), env...)
	cmd.Dir = t.TempDir()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// background starts the binary and returns a function that waits for its end.
func background(t *testing.T, env []string, args ...string) func() result {
	t.Helper()
	p, err := launch(program(t), "", env, args...)
	require.NoError(t, err)
	return func() result {
		t.Helper()
		code, err := p.wait(2 * time.Minute)
		require.NoError(t, err)
		return result{code, p.stdout.String(), p.stderr.String()}
	}
}
