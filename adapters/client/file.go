package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// File is a file that a module built.
type File struct {
	Name    string // as the server proposes it, without folders; "" if it proposes none
	Content []byte
	SHA256  string // of the content, in hexadecimal
}

// ModuleFile asks for a file that a module declares by its path,
// "ap/payment-runs/{run_id}/file". Parameters of the path are taken from the query. Faults: those
// of the server, client.file_damaged.
func (c *Client) ModuleFile(ctx context.Context, path string, query url.Values, options ...Option) (File, error) {
	return c.doFile(ctx, declaredRequest(path, query), options)
}

// doFile sends a request whose answer is a file, and compares the content with its ETag.
func (c *Client) doFile(ctx context.Context, r request, options []Option) (File, error) {
	var content json.RawMessage
	var received http.Header
	r.received = &received
	if err := c.do(ctx, r, nil, append(options, Document(&content))); err != nil {
		return File{}, err
	}
	sum := sha256.Sum256(content)
	f := File{Content: content, SHA256: hex.EncodeToString(sum[:])}
	if tag := strings.Trim(received.Get("ETag"), `"`); tag != f.SHA256 {
		return File{}, fault.New(fault.Unavailable, "client.file_damaged", "the file that arrived is not the one that the server sent; ask for it again")
	}
	if _, parameters, err := mime.ParseMediaType(received.Get("Content-Disposition")); err == nil {
		f.Name = parameters["filename"]
	}
	return f, nil
}
