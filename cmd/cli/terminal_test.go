package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// terminal carries out command lines against a server, as a caller with a token does.
type terminal struct {
	server, token string
	second        string // token of another person with the same roles
	in            string
	out, err      bytes.Buffer
}

// other is the terminal of the other person.
func (d *terminal) other() *terminal { return &terminal{server: d.server, token: d.second} }

// run carries out a command that talks to the server.
func (d *terminal) run(t *testing.T, words ...string) error {
	t.Helper()
	return d.runWithin(t.Context(), words...)
}

// runWithin carries it out until ctx ends at the latest.
func (d *terminal) runWithin(ctx context.Context, words ...string) error {
	root := newRoot(nil)
	root.SetArgs(append(words, "--server", d.server, "--token", d.token))
	root.SetIn(strings.NewReader(d.in))
	root.SetOut(&d.out)
	root.SetErr(&d.err)
	return root.ExecuteContext(ctx)
}

// printed takes what the commands so far have printed.
func (d *terminal) printed() string {
	out := d.out.String()
	d.out.Reset()
	return out
}
