package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/cli"
)

// paperServer has one invoice, that names its paper and those of its attachments, and their bytes.
type paperServer map[string]string

func (s paperServer) ReadStream(_ context.Context, streamType, _ string, _ client.ReadStreamParams, _ ...client.Option) (client.StreamPage, error) {
	if streamType != "ap.invoice" {
		return client.StreamPage{}, fault.New(fault.NotFound, "stream.not_found", "no such stream")
	}
	return client.StreamPage{Events: []client.Event{{Data: []byte(`{"hold_id":"X"}`)}, {
		Data: []byte(`{"source_document":{"paper":"P0"},"attachments":[{"paper":"P1"},{"filename":"attachment-2.csv"}]}`),
	}}}, nil
}

func (s paperServer) GetPaper(_ context.Context, id, _ string) (client.PaperFile, error) {
	return client.PaperFile{Name: "paper-" + id + ".pdf", MediaType: "application/pdf", Bytes: []byte(s[id])}, nil
}

// TestPaperCommand writes a document's file, or that of one of its attachments.
func TestPaperCommand(t *testing.T) {
	t.Parallel()
	server := paperServer{"P0": "invoice", "P1": "hours"}
	run := func(args ...string) (string, error) {
		cmd := cli.PaperCommand(func(_, _, _ string) (cli.PaperAPI, error) { return server, nil })
		path := filepath.Join(t.TempDir(), "file")
		cmd.SetArgs(append(args, "01M7XG62RNBTFVXQKRCWYT78CR", "-o", path))
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			return "", err
		}
		written, err := os.ReadFile(path)
		return string(written), err
	}
	for want, args := range map[string][]string{"invoice": nil, "hours": {"--attachment", "1"}} {
		got, err := run(args...)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, number := range []string{"2", "3", "-1"} { // not kept by itself, and not there
		_, err := run("--attachment", number)
		require.Equal(t, "ap.invoice.paper_not_found", fault.CodeOf(err), number)
	}
}
