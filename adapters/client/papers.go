package client

import (
	"context"
	"io"
	"mime"
	"net/http"
	"net/url"
)

// KeepPaperParams say where and how a paper is kept.
type KeepPaperParams struct {
	LegalEntity string
	Subject     string // type:id, whose erasure reaches the paper
	Retention   string // RetentionRegulatory or RetentionSubject
	MediaType   string
}

// The retentions of papers.
const (
	RetentionRegulatory = "regulatory"  // ten years
	RetentionSubject    = "pii_subject" // until the subject is erased
)

// KeepPaper is POST /api/papers. The same file again is answered with the paper that is kept.
func (c *Client) KeepPaper(ctx context.Context, params KeepPaperParams, file []byte, options ...Option) (out Paper, err error) {
	r := request{method: http.MethodPost, path: "/api/papers", file: file, mediaType: params.MediaType, repeatable: true}
	r.query = url.Values{"legal_entity": {params.LegalEntity}, "subject": {params.Subject}, "retention": {params.Retention}}
	err = c.do(ctx, r, &out, options)
	return out, err
}

// PaperFile is a downloaded paper.
type PaperFile struct {
	Name      string
	MediaType string
	Bytes     []byte
}

// GetPaper is GET /api/papers/{id}. legalEntity "" searches all that the caller may see.
func (c *Client) GetPaper(ctx context.Context, id, legalEntity string) (PaperFile, error) {
	query := url.Values{}
	if legalEntity != "" {
		query.Set("legal_entity", legalEntity)
	}
	res, err := c.openStream(ctx, expandPath("/api/papers/%s", id), query, http.Header{"Accept": {"*/*"}})
	if err != nil {
		return PaperFile{}, err
	}
	defer func() { _ = res.Body.Close() }()
	out := PaperFile{MediaType: res.Header.Get("Content-Type")}
	if _, params, err := mime.ParseMediaType(res.Header.Get("Content-Disposition")); err == nil {
		out.Name = params["filename"]
	}
	if out.Bytes, err = io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes)); err != nil {
		return PaperFile{}, unreachableFault(ctx, err)
	}
	return out, nil
}
