package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
)

// PersonalReport writes everything that is stored about a person to out, as JSON Lines: GET
// /api/personal-data/report. The reason is for the access log. legalEntity "" reports of all that the
// caller may see. Faults: those of the server, client.export_aborted (Unavailable: the report is
// incomplete).
func (c *Client) PersonalReport(ctx context.Context, subject, legalEntity, reason string, out io.Writer) error {
	query := url.Values{"subject": {subject}}
	if legalEntity != "" {
		query.Set("legal_entity", legalEntity)
	}
	res, err := c.openStream(ctx, "/api/personal-data/report", query, http.Header{"Accept": {"application/jsonl, application/problem+json"}, "Access-Reason": {reason}})
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewReaderSize(res.Body, 256<<10)
	for ended := false; ; {
		line, err := readLine(lines)
		switch {
		case errors.Is(err, io.EOF) && ended:
			return nil
		case err != nil:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return abortedFault(err)
		case bytes.HasPrefix(line, []byte(`{"error":`)):
			return decodeFinalProblem(line)
		}
		ended = bytes.HasPrefix(line, []byte(`{"kind":"end",`))
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
}
