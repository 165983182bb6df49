import { MinusCircleOutlined, PlusOutlined } from "@ant-design/icons";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Collapse, Form, Input, InputNumber, Select } from "antd";
import { useRef } from "react";
import { useTranslation } from "react-i18next";
import { call, newRequestId } from "../../api";
import { useServerErrors } from "../../components/useServerErrors";
import { State } from "../../gen/yunhe/jobs/v1/jobs_pb";
import type { Service } from "../../gen/yunhe/routing/v1/routing_pb";
import { fromService, type ServiceValues, serviceField, toService } from "../../lib/services";
import { useCenters } from "../../queries";
import { useClients } from "../../session";

export function ServiceForm({ service: s, onDone }: { service?: Service; onDone: () => void }) {
  const { t } = useTranslation();
  const { routing, jobs } = useClients();
  const { message } = App.useApp();
  const client = useQueryClient();
  const centers = useCenters();
  const running = useQuery({
    queryKey: ["jobs", "serving"],
    queryFn: async ({ signal }) => (await jobs.listJobs({ pageSize: 200, states: [State.RUNNING] }, call(signal))).jobs,
  });
  const [form] = Form.useForm<ServiceValues>();
  const errors = useServerErrors(form, "service", serviceField);
  const requestId = useRef(newRequestId());
  const save = useMutation({
    mutationFn: (values: ServiceValues) => {
      const service = toService(values, s?.serviceId ?? "");
      return s
        ? routing.updateService({ service }, call())
        : routing.createService({ requestId: requestId.current, service }, call());
    },
    onSuccess: async (done) => {
      void message.success(t("service.saved", { name: done.name }));
      onDone();
      await client.invalidateQueries({ queryKey: ["services"] });
    },
    onError: errors.show,
  });
  const required = { required: true, message: t("form.required") };
  const known = new Map((running.data ?? []).map((j) => [j.jobId, j.spec?.name ?? ""]));
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={fromService(s)}
      onValuesChange={() => {
        requestId.current = newRequestId();
      }}
      onFinish={() => {
        errors.show(undefined);
        save.mutate(form.getFieldsValue(true) as ServiceValues);
      }}
    >
      {errors.alert}
      <div className="yh-cols-2">
        <Form.Item name="name" label={t("form.name")} rules={[required]}>
          <Input autoFocus autoComplete="off" />
        </Form.Item>
        <Form.Item name="replicaRate" label={t("service.rate")} rules={[required]}>
          <InputNumber min={0.001} max={1_000_000} suffix={t("service.perSecond")} />
        </Form.Item>
      </div>
      <Form.Item name="jobIds" label={t("service.jobs")} extra={t("service.jobsHelp")} rules={[required]}>
        <Select
          mode="tags"
          tokenSeparators={[" ", ","]}
          data-testid="service-jobs"
          options={[...known].map(([value, name]) => ({ value, label: `${name} · ${value}` }))}
        />
      </Form.Item>
      <Form.Item label={t("service.origins")} required>
        <Form.List name="origins">
          {(fields, { add, remove }) => (
            <>
              {fields.map(({ key, name }) => (
                <div className="yh-row yh-origin" key={key}>
                  <Form.Item name={[name, "originId"]} noStyle rules={[required]}>
                    <Input
                      className="yh-w-140"
                      placeholder={t("service.originId")}
                      aria-label={t("service.originId")}
                    />
                  </Form.Item>
                  <Form.Item name={[name, "name"]} noStyle>
                    <Input
                      className="yh-w-180"
                      placeholder={t("service.originName")}
                      aria-label={t("service.originName")}
                    />
                  </Form.Item>
                  <Form.Item name={[name, "longitude"]} noStyle>
                    <InputNumber
                      min={-180}
                      max={180}
                      placeholder={t("service.longitude")}
                      aria-label={t("service.longitude")}
                    />
                  </Form.Item>
                  <Form.Item name={[name, "latitude"]} noStyle>
                    <InputNumber
                      min={-90}
                      max={90}
                      placeholder={t("service.latitude")}
                      aria-label={t("service.latitude")}
                    />
                  </Form.Item>
                  {fields.length > 1 && (
                    <Button
                      type="text"
                      size="small"
                      icon={<MinusCircleOutlined />}
                      aria-label={t("common.remove")}
                      onClick={() => remove(name)}
                    />
                  )}
                </div>
              ))}
              <Button
                size="small"
                type="dashed"
                icon={<PlusOutlined />}
                onClick={() => add({ originId: "", name: "" })}
              >
                {t("service.addOrigin")}
              </Button>
            </>
          )}
        </Form.List>
      </Form.Item>
      <Collapse
        ghost
        size="small"
        className="yh-more-options"
        items={[
          {
            key: "more",
            label: t("service.advanced"),
            forceRender: true,
            children: (
              <>
                <div className="yh-cols-3">
                  <Form.Item name="maxLatencyMs" label={t("service.maxLatency")} tooltip={t("service.maxLatencyHelp")}>
                    <InputNumber min={0} max={10_000} suffix="ms" placeholder={t("service.noLimit")} />
                  </Form.Item>
                  <Form.Item name="maxUsePercent" label={t("service.maxUse")} tooltip={t("service.maxUseHelp")}>
                    <InputNumber min={1} max={99} precision={0} suffix="%" />
                  </Form.Item>
                  <Form.Item name="movePercent" label={t("service.move")} tooltip={t("service.moveHelp")}>
                    <InputNumber min={1} max={100} precision={0} suffix="%" />
                  </Form.Item>
                </div>
                <Form.Item label={t("service.endpoints")}>
                  <Form.List name="endpoints">
                    {(fields, { add, remove }) => (
                      <>
                        {fields.map(({ key, name }) => (
                          <div className="yh-row yh-origin" key={key}>
                            <Form.Item name={[name, "name"]} noStyle rules={[required]}>
                              <Select
                                className="yh-w-240"
                                placeholder={t("service.endpointCenter")}
                                aria-label={t("service.endpointCenter")}
                                options={(centers.data ?? []).map((c) => ({
                                  value: c.aiCenterId,
                                  label: c.name || c.aiCenterId,
                                }))}
                              />
                            </Form.Item>
                            <Form.Item name={[name, "value"]} noStyle rules={[required]}>
                              <Input
                                className="yh-w-240"
                                placeholder={t("service.endpointAddress")}
                                aria-label={t("service.endpointAddress")}
                              />
                            </Form.Item>
                            <Button
                              type="text"
                              size="small"
                              icon={<MinusCircleOutlined />}
                              aria-label={t("common.remove")}
                              onClick={() => remove(name)}
                            />
                          </div>
                        ))}
                        <Button size="small" type="dashed" icon={<PlusOutlined />} onClick={() => add({})}>
                          {t("common.add")}
                        </Button>
                      </>
                    )}
                  </Form.List>
                </Form.Item>
              </>
            ),
          },
        ]}
      />
      <div className="yh-row">
        <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-service">
          {t(s ? "common.save" : "common.create")}
        </Button>
        <Button onClick={onDone}>{t("common.cancel")}</Button>
      </div>
    </Form>
  );
}
