package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/erpbackbone/backbone/ports"
)

// collector sends spans to an OTLP/HTTP endpoint as protobuf. It implements
// otlptrace.Client. The SDK's own client, otlptracehttp, links the gRPC stubs of the
// collector's service: 62 more packages for one POST request.
type collector struct {
	url    string
	header http.Header
	http   *http.Client
	pause  time.Duration // before the second attempt, doubled with each further one
}

// A batch that the collector refuses for the moment is sent again, as OTLP demands.
// What the SDK's exporter waits for bounds the whole (30 s).
const (
	requestTimeout = 10 * time.Second
	firstPause     = 500 * time.Millisecond
	maxAttempts    = 5
	maxAnswer      = 64 << 10 // bytes of an answer that are read so that its connection is used again
)

func newCollector(url string) *collector {
	header := http.Header{}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		addHeaders(header, os.Getenv(name))
	}
	header.Set("Content-Type", "application/x-protobuf")
	return &collector{url: url, header: header, http: &http.Client{Timeout: requestTimeout}, pause: firstPause}
}

// addHeaders reads OpenTelemetry's form: name=value pairs separated by commas, values
// percent-encoded. Pairs that cannot be read are left out.
func addHeaders(header http.Header, text string) {
	for pair := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); found && name != "" && err == nil {
			header.Set(name, value)
		}
	}
}

// Start implements otlptrace.Client.
func (c *collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *collector) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. Errors never quote what the collector
// answered.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// TracesData has the encoding of the service's ExportTraceServiceRequest.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	pause := c.pause
	for attempt := 1; ; attempt++ {
		retryAfter, err := c.post(ctx, body)
		if err == nil || retryAfter < 0 || attempt == maxAttempts {
			return err
		}
		if ports.Sleep(ctx, max(pause, retryAfter)) != nil {
			return err
		}
		pause *= 2
	}
}

// post sends one request. retryAfter is how long the collector wants to be left alone
// before the next attempt, negative when another attempt is of no use.
func (c *collector) post(ctx context.Context, body []byte) (retryAfter time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	request.Header = c.header.Clone()
	answer, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	_ = answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // without one: 0
		return time.Duration(max(seconds, 0)) * time.Second, fmt.Errorf("the collector answered %s", answer.Status)
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return -1, fmt.Errorf("the collector answered %s", answer.Status)
	}
	return 0, nil
}
