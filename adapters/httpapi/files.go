package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/tenancy"
)

const actionFiles = "files.read"

// servedFile is a declared file and its address.
type servedFile struct {
	module.File
	path  string // "ap/payment-runs/{run_id}/file"
	route string // "/api/ap/payment-runs/:run_id/file"
}

// declaredFiles turns the declarations into routes.
func declaredFiles(catalog Catalog) ([]servedFile, error) {
	declared := catalog.Files()
	out := make([]servedFile, 0, len(declared))
	for _, path := range slices.Sorted(maps.Keys(declared)) {
		f := servedFile{File: declared[path], path: path}
		var err error
		if f.route, err = routeOf(path, f.Params); err != nil {
			return nil, fmt.Errorf("file %s: %w", path, err)
		}
		out = append(out, f)
	}
	return out, nil
}

// fileHandler makes the handler of a declared file.
func fileHandler(f servedFile) handler {
	owner := tenancy.TypeAccess{Type: f.path, BuiltIn: true}
	owner.Module, _, _ = strings.Cut(f.path, "/")
	return func(s *Server, ctx context.Context, r *request) (any, error) {
		q := pipeline.FileRequest{Path: f.path, Params: map[string]string{}}
		err := readPathParams(r, f.Params, q.Params)
		if err != nil {
			return nil, err
		}
		if q.LegalEntity, err = s.declaredRouteEntity(ctx, r, actionFiles, owner); err != nil {
			return nil, err
		}
		if q.Reader, err = s.config.Disclosures.Reader(ctx, callOf(ctx).principal, purposeOf(ctx)); err != nil {
			return nil, err
		}
		built, err := s.config.Intents.BuildFile(ctx, callerOf(ctx), q)
		if err != nil {
			return nil, convertToUnavailable(err)
		}
		return fileAnswer{file: built, mediaType: f.MediaType}, nil
	}
}

// fileAnswer is a file to save. It is not compressed, so that its ETag is the digest of what the
// caller receives.
type fileAnswer struct {
	file      module.BuiltFile
	mediaType string
}

func (a fileAnswer) write(w http.ResponseWriter) error {
	sum := sha256.Sum256(a.file.Content)
	h := w.Header()
	h.Set(echo.HeaderContentDisposition, mime.FormatMediaType("attachment", map[string]string{"filename": a.file.Name}))
	h.Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
	return answer{status: http.StatusOK, contentType: a.mediaType, body: a.file.Content}.write(w)
}
