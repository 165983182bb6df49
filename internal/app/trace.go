package app

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	apitrace "go.opentelemetry.io/otel/trace"

	"yunhe.dev/yunhe/internal/fault"
)

// startTracing sends spans to an OTLP collector; without an endpoint spans
// cost nothing. The returned function flushes them.
func startTracing(ctx context.Context, cfg TraceConfig) (func(context.Context) error, error) {
	if cfg.Endpoint == "" {
		return func(context.Context) error { return nil }, nil
	}
	exp, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(cfg.Endpoint+"/v1/traces"))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "trace.endpoint %q cannot be used", cfg.Endpoint)
	}
	p := trace.NewTracerProvider(trace.WithBatcher(exp), trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(cfg.Ratio))),
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", "yunhe"))))
	otel.SetTracerProvider(p)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return p.Shutdown, nil
}

// traced gives every call a span, as a child of the caller's if it sent one.
func traced(next http.Handler) http.Handler {
	tracer := otel.Tracer("yunhe.dev/yunhe/internal/app")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := otel.GetTextMapPropagator().Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := tracer.Start(ctx, r.Method+" "+r.URL.Path, apitrace.WithSpanKind(apitrace.SpanKindServer))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
