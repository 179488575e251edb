package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/erpbackbone/backbone/domain/fault"
)

// ExportedPage is a part of an export: complete lines, one event each.
type ExportedPage struct {
	Lines  []byte
	Events int
	// NextCursor continues after the page; "" on the last one.
	NextCursor string
}

const (
	// maxLineBytes bounds one event, which the server bounds at 1 MiB by default.
	maxLineBytes = 64 << 20
	codeAborted  = "client.export_aborted"
)

// Export reads all events of a query, a page at a time; parameters are those of GET
// /api/events/export. When the export breaks off, the cursor of the last page
// that take received continues after it, so no event comes twice. Faults: those of the
// server, client.export_aborted (Unavailable: the body is incomplete).
func (c *Client) Export(ctx context.Context, parameters url.Values, take func(ExportedPage) error) error {
	query := url.Values{"checkpoints": {"true"}}
	maps.Copy(query, parameters)
	res, err := c.openStream(ctx, "/api/events/export", query, http.Header{"Accept": {"application/jsonl, application/problem+json"}})
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	return readExport(ctx, res, take)
}

func readExport(ctx context.Context, res *http.Response, take func(ExportedPage) error) error {
	var page ExportedPage
	lines := bufio.NewReaderSize(res.Body, 256<<10)
	for {
		line, err := readLine(lines)
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return take(page)
		case err != nil:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return abortedFault(err)
		case bytes.HasPrefix(line, []byte(`{"next_cursor":`)):
			var checkpoint struct {
				NextCursor string `json:"next_cursor"`
			}
			if err := json.Unmarshal(line, &checkpoint); err != nil {
				return abortedFault(err)
			}
			page.NextCursor = checkpoint.NextCursor
			if err := take(page); err != nil {
				return err
			}
			page = ExportedPage{Lines: page.Lines[:0]}
		case bytes.HasPrefix(line, []byte(`{"error":`)):
			return decodeFinalProblem(line)
		default:
			page.Lines = append(page.Lines, line...)
			page.Events++
		}
	}
}

// readLine reads a line including its newline. It returns io.EOF at the end of the body, and
// io.ErrUnexpectedEOF if the last line has no newline.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line == nil && err == nil {
			return part, nil
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull) && len(line) < maxLineBytes:
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// decodeFinalProblem reads the problem with which a server ends an export that failed.
func decodeFinalProblem(line []byte) error {
	var last struct {
		Error json.RawMessage `json:"error"`
	}
	var status struct {
		Status int `json:"status"`
	}
	if json.Unmarshal(line, &last) != nil || json.Unmarshal(last.Error, &status) != nil {
		return abortedFault(nil)
	}
	return decodeProblem(&http.Response{StatusCode: status.Status, Header: http.Header{}}, last.Error)
}

func abortedFault(cause error) error {
	return fault.New(fault.Unavailable, codeAborted, "the export broke off; go on with the cursor of its last page").WithCause(cause)
}
