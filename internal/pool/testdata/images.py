"""Functions of OpenCV on the first device of OpenCL, whatever its kind. Canny and
what follows from it are left out: their kernels give several results, natively, too."""

import hashlib
import os

os.environ["OPENCV_OPENCL_DEVICE"] = ":CPU|GPU|ACCELERATOR:"
os.environ["OPENCV_OPENCL_CACHE_ENABLE"] = "false"

import cv2
import numpy as np

cv2.ocl.setUseOpenCL(True)
if not cv2.ocl.useOpenCL():
    raise SystemExit("OpenCV does not use OpenCL")
image = np.random.default_rng(1).integers(0, 256, (480, 640, 3), dtype=np.uint8)
color = cv2.UMat(image)
gray = cv2.cvtColor(color, cv2.COLOR_BGR2GRAY)
wide = np.tile(np.arange(640, dtype=np.float32), (480, 1))
high = np.tile(np.arange(480, dtype=np.float32)[:, None], (1, 640))


def show(name, *results):
    digests = [hashlib.sha256(np.ascontiguousarray(r.get()).tobytes()).hexdigest()[:16] for r in results]
    print(name, *digests)


show("gray", gray)
show("blur", cv2.GaussianBlur(gray, (7, 7), 1.5))
show("median", cv2.medianBlur(gray, 5))
show("bilateral", cv2.bilateralFilter(gray, 9, 75, 75))
show("resize", cv2.resize(color, (1000, 700), interpolation=cv2.INTER_LINEAR))
show("warp", cv2.warpAffine(gray, np.float32([[1, 0.2, 3], [0.1, 1, 5]]), (640, 480)))
show("erode", cv2.erode(gray, np.ones((5, 5))))
show("threshold", cv2.threshold(gray, 100, 255, cv2.THRESH_BINARY)[1])
show("integral", cv2.integral(gray))
show("pyramid", cv2.pyrDown(gray), cv2.pyrUp(gray))
show("laplacian", cv2.Laplacian(gray, cv2.CV_16S))
show("split", *cv2.split(color))
show("remap", cv2.remap(gray, cv2.UMat(wide), cv2.UMat(high), cv2.INTER_LINEAR))
show("histogram", cv2.calcHist([gray], [0], None, [256], [0, 256]))
show("transform", cv2.dft(cv2.UMat(np.float32(image[:, :, 0]))))
show("product", cv2.gemm(cv2.UMat(np.float32(image[:256, :256, 0])), cv2.UMat(np.float32(image[:256, :256, 1])), 1, None, 0))
